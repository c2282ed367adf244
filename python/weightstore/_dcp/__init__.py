"""The storage of `weightstore.dcp`: what torch.distributed.checkpoint calls, and the directory of a checkpoint. Imports torch.

May import `_tensors`, `_chunks` and `_files`.
"""

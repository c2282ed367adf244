"""Sharded checkpoints of training jobs. `Saver` and `Loader` use `torch.classes.store`; `CheckpointReader` needs no torch.

May import `_tensors` and `_files`. torch is imported when it is first needed.
"""

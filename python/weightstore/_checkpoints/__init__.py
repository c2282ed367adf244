"""Sharded checkpoints of training jobs, saved and loaded through `torch.classes.store`.

May import `_tensors` and `_files`. torch is imported when it is first needed.
"""

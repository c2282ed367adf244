"""`CheckpointManager`: the checkpoints of a training run, in a directory of their own.

May import `_tensors`, `_files`, `_modules`, `_state` and `_checkpoints`.
"""

"""The storage of `weightstore.dcp`: plans, files, directories and indexes of checkpoints of torch.distributed.checkpoint.

`layout`, `index` and `directory` know nothing of torch. What is imported from here is imported from its module.
"""

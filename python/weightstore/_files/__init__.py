"""One file of weights, or a set of shards: opened, read, saved and converted.

May import `_tensors`.
"""

"""Checkpoints whose tensors lie in chunks, one or several files a rank: where each chunk is, and indexes of them. Knows no torch.

May import `_tensors`.
"""

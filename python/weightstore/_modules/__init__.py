"""Modules (of torch, or nested mappings of arrays): which tensors they hold, under which names, and how these are changed.

May import `_tensors` and `_files`. `stores` builds on this package.
"""

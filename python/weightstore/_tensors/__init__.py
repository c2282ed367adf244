"""Element types, and tensors as numpy, torch and DLPack show them.

The lowest package: it imports `_core` and `errors`, and none of the other packages.
"""

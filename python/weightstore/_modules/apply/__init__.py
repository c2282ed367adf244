"""Tensors applied to a module in two phases: a plan, which reads no data, and its commit.

May import what `_modules` may, and `_modules` itself.
"""

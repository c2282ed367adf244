"""Runs torch modules whose weights are in a file: a pager has the weights of a block in memory while the block runs."""

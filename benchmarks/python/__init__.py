"""Weightstore against its peers and the machine's limits, in one table."""

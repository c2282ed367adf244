"""What a file holds, without loading it: summaries, statistics of numbers, and differences of two files.

May import `_files`. The command and the report in HTML are made of these.
"""

"""From one file to another: other formats, names, types, shards and metadata.

May import `_files` and `_modules`.
"""

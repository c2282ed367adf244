"""Pages for people: what a file holds, as HTML. Reads no files."""

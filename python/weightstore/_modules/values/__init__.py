"""The values of one tensor: where they come from (`original`), and what changes them on their way (`changed`)."""

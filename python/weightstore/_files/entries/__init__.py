"""What a file holds beside tensors: scalars and typed metadata."""

"""The library behind `torch.classes.store`: which one fits the installed torch, and how it is built and loaded."""

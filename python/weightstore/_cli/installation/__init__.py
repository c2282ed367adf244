"""Verbs about the installation itself: where its parts are, and the library for torch."""

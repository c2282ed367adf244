"""Converts errors of torch.classes.store to errors of this package.

torch turns every exception into a RuntimeError and keeps only its text. The library remembers the rest for each thread.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from .. import errors


@contextmanager
def translated() -> Iterator[None]:
    """Raises an error of torch.classes.store as a CheckpointError of the right kind."""
    import torch

    try:
        yield
    except RuntimeError as error:
        known = json.loads(torch.ops.store.last_error())
        if isinstance(error, errors.StoreError) or not known or known["text"] not in str(error):
            raise
        raise errors.from_core(
            known["code"],
            "checkpoint",
            known["text"],
            known["message"],
            known.get("path"),
            known.get("tensor"),
            known.get("offset"),
            known["errno"],
            None,
        ) from None

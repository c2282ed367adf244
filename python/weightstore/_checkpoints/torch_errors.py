"""Errors of torch.classes.store as this package's own.

torch makes a RuntimeError of every exception and keeps only its text; the library remembers the rest for the thread.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from .. import errors


@contextmanager
def translated() -> Iterator[None]:
    """Raises what a call of torch.classes.store says as the error it is: a CheckpointError of its kind."""
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

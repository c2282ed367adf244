"""Converts errors of torch.classes.store to errors of this package.

torch turns every exception into a RuntimeError and keeps only its text. The library remembers the rest for each thread.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from .. import errors


def translate(error: RuntimeError) -> RuntimeError | errors.StoreError:
    """An error of torch.classes.store as a CheckpointError of the right kind. Any other error as it is."""
    import torch

    known = json.loads(torch.ops.store.last_error())
    if isinstance(error, errors.StoreError) or not known or known["text"] not in str(error):
        return error
    return errors.from_core(
        known["code"],
        "checkpoint",
        known["text"],
        known["message"],
        known.get("path"),
        known.get("tensor"),
        known.get("offset"),
        known["errno"],
        None,
    )


@contextmanager
def translated() -> Iterator[None]:
    """Raises an error of torch.classes.store as translate() makes it."""
    try:
        yield
    except RuntimeError as error:
        if (translation := translate(error)) is error:
            raise
        raise translation from None

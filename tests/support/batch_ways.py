"""Tensors that cross into the core together, and one by one."""

from __future__ import annotations

import pytest

from weightstore._tensors import batches


def one_by_one(call, *args, **options):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "leaves_all_to_python", True)
        return call(*args, **options)


def outcome(call, *args, **options):
    """What a call returns; or the class, the text and the tensor of the error."""
    try:
        return call(*args, **options)
    except Exception as error:
        return type(error), str(error), getattr(error, "tensor", None)

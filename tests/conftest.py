"""What all tests share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def testdata() -> Path:
    """Files that are too many or too large for the repository."""
    root = os.environ.get("WEIGHTSTORE_TESTDATA")
    if not root:
        pytest.skip("WEIGHTSTORE_TESTDATA is not set: it names the directory with fixtures/ and testkit/")
    return Path(root)


@pytest.fixture(scope="session")
def write_raw() -> Callable[..., bytes]:
    """Writes tensors given as ``{name: (dtype, shape, bytes)}``, of every element type there is."""
    from weightstore import _core

    def write(tensors, format="safetensors", *, metadata=None, scalars=None, ids=None, path=None, **options):
        writer = _core.Writer()
        for name, (dtype, shape, data) in tensors.items():
            produce = bytes(data).__bytes__
            writer.add_deferred(name, dtype, list(shape), produce, (ids or {}).get(name))
        if metadata is not None:
            writer.set_metadata(metadata)
        for name, value in (scalars or {}).items():
            writer.set_scalar(name, value)
        if path is None:
            return writer.write_bytes(format, **options)
        writer.write_file(path, format, **options)
        return Path(path).read_bytes()

    return write


@pytest.fixture(scope="session")
def contents() -> Callable[..., dict]:
    """Everything an open file holds, as ``{name: (dtype, shape, bytes)}``."""

    def read(file):
        return {name: (file[name].dtype, tuple(file[name].shape), file[name].bytes()) for name in file}

    return read


@pytest.fixture(scope="module", params=["together", "one by one"])
def both_ways(request) -> Iterator[str]:
    """Runs the tests of a module twice: with tensors that cross into the core together, and as with an older torch, where each
    goes through Python."""
    from weightstore._tensors import batches

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "leaves_all_to_python", request.param == "one by one")
        yield request.param

"""Whether two states are the same, types and bits included."""

from __future__ import annotations

import collections
import dataclasses
import struct
from typing import Any

import numpy as np


def assert_same(found: Any, expected: Any, path: str = "state") -> None:
    """Without recursion, so that states of any depth can be compared."""
    waiting = [(found, expected, path)]
    while waiting:
        found, expected, path = waiting.pop()
        path = path[-100:]
        assert type(found) is type(expected), path
        if isinstance(expected, dict):
            assert list(found) == list(expected) or _is_unordered_match(found, expected), path
            for (left, a), (right, b) in zip(found.items(), expected.items(), strict=True):
                waiting += [(left, right, f"{path} (key)"), (a, b, f"{path}.{right!r}")]
            if isinstance(expected, collections.defaultdict):
                assert found.default_factory is expected.default_factory, path
            if isinstance(expected, collections.OrderedDict):
                waiting.append((vars(found), vars(expected), f"{path} (attributes)"))
        elif isinstance(expected, (list, tuple)):
            assert len(found) == len(expected), path
            waiting += [(a, b, f"{path}.{i}") for i, (a, b) in enumerate(zip(found, expected, strict=True))]
        elif isinstance(expected, (set, frozenset)):
            assert sorted(map(_bits, found)) == sorted(map(_bits, expected)), path
        elif isinstance(expected, np.ndarray):
            assert (found.dtype, found.shape) == (expected.dtype, expected.shape), path
            assert found.tobytes() == expected.tobytes(), path
        elif isinstance(expected, np.generic):
            assert (found.dtype, found.tobytes()) == (expected.dtype, expected.tobytes()), path
        elif type(expected).__module__.startswith("torch") and hasattr(expected, "untyped_storage"):
            _assert_same_tensor(found, expected, path)
        elif dataclasses.is_dataclass(expected):
            waiting += [(getattr(found, f.name), getattr(expected, f.name), path) for f in dataclasses.fields(expected)]
        else:
            assert _bits(found) == _bits(expected), path


def _is_unordered_match(found: dict[Any, Any], expected: dict[Any, Any]) -> bool:
    """Keys that are not equal to themselves: NaN."""
    return [_bits(key) for key in found] == [_bits(key) for key in expected]


def _bits(value: Any) -> str:
    """Text that differs for values of other types or bits."""
    if type(value) is float:
        return struct.pack(">d", value).hex()
    if type(value) is int:
        return hex(value)
    if type(value) is complex:
        return _bits(value.real) + _bits(value.imag)
    if isinstance(value, (tuple, frozenset)):
        items = map(_bits, value)
        return f"{type(value)}{list(items) if isinstance(value, tuple) else sorted(items)}"
    return f"{type(value)}{value!r}"


def _assert_same_tensor(found: Any, expected: Any, path: str) -> None:
    import torch

    for attribute in ("dtype", "shape", "requires_grad"):
        assert getattr(found, attribute) == getattr(expected, attribute), (path, attribute)
    a, b = (
        x.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format).reshape(-1)
        for x in (found, expected)
    )
    assert torch.equal(a.view(torch.uint8), b.view(torch.uint8)), path

"""The forms in which torch.save() writes a value, and the tensors that a value holds."""

from __future__ import annotations

import argparse
import collections
import io
import types
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

FORMS: dict[str, dict[str, Any]] = {
    "zip": {},
    "stream": {"_use_new_zipfile_serialization": False},
    "protocol 3": {"pickle_protocol": 3},
    "protocol 4": {"pickle_protocol": 4},
    "protocol 5": {"pickle_protocol": 5},
}


def saved(value: Any, form: str) -> bytes:
    stream = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch cannot find the source of every class
        torch.save(value, stream, **FORMS[form])
    return stream.getvalue()


def is_dense(value: Any) -> bool:
    return not (value.is_quantized or value.is_nested or value.layout != torch.strided or value.device.type == "meta")


def tensors_of(value: Any, name: str = "") -> dict[str, Any]:
    """Every dense tensor and every array of numbers below `value`, by the name that weightstore gives it."""
    if isinstance(value, torch.Tensor):
        return {name or "tensor": value.detach()} if is_dense(value) else {}
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "biufc":
            return {}
        return {name: torch.from_numpy(np.array(value.astype(value.dtype.newbyteorder("="))))}
    items: Any = ()
    if isinstance(value, torch.nn.Module):
        items = value.state_dict().items()
    elif isinstance(value, (argparse.Namespace, types.SimpleNamespace)):
        items = vars(value).items()
    elif isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, (list, collections.deque)) or type(value) is tuple:
        items = enumerate(value)
    result = {}
    for key, item in items:
        result |= tensors_of(item, f"{name}.{key}" if name else str(key))
    return result

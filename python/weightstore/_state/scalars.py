"""Values without parts: how each is written into a tree. Keys of dicts and elements of sets are among them, tuples included.

A tree nests keys instead of referring to them. Python computes the hash of a tuple anew each time, and a tuple that refers to
another one twice would cost twice as much as that one: a small file could keep the reader busy for ever.
"""

from __future__ import annotations

import base64
import binascii
import enum
import math
import struct
import sys
from collections.abc import Callable
from typing import Any

from . import types
from .tree import DEEPEST_KEY, LARGEST_PLAIN_INT, NotAScalar, float_bits, float_of_bits


def encode(value: Any) -> Any:
    """Raises NotAScalar."""
    kind = type(value)
    if value is None or kind is bool or kind is str:
        return value
    if kind is int:
        return value if abs(value) <= LARGEST_PLAIN_INT else ["int", hex(value)]
    if kind is float:
        return value if math.isfinite(value) else ["float", float_bits(value)]
    if kind is complex:
        return ["complex", encode(value.real), encode(value.imag)]
    if kind is bytes:
        return ["bytes", base64.b64encode(value).decode()]
    if isinstance(value, enum.Enum):
        return _encode_enum(value)
    torch = sys.modules.get("torch")
    if torch is not None:
        if kind is torch.dtype:
            return ["torch.dtype", str(value).removeprefix("torch.")]
        if kind is torch.Size:
            return ["torch.Size", *map(encode, value)]
        if kind is torch.device:
            return ["torch.device", str(value)]
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, (numpy.generic, numpy.dtype)):
        from . import arrays

        return arrays.encode_dtype(value) if isinstance(value, numpy.dtype) else arrays.encode_scalar(value)
    raise NotAScalar


def _encode_enum(value: enum.Enum) -> list[Any]:
    name = types.name_of(type(value))
    if name is None:
        raise NotAScalar("call weightstore.register_state_type() with its class")
    # A combination of flags has no name that its class can be asked for.
    return ["enum", name, value.name] if value.name in type(value).__members__ else ["flags", name, value.value]


def encode_key(value: Any, depth: int = 0) -> Any:
    """Raises NotAScalar."""
    if type(value) is not tuple and type(value) is not frozenset:
        return encode(value)
    if depth == DEEPEST_KEY:
        raise NotAScalar(f"keys are tuples of at most {DEEPEST_KEY} levels")
    return [type(value).__name__, *(encode_key(item, depth + 1) for item in value)]


def decode(value: Any) -> Any:
    """Raises ValueError if the value was not made by encode()."""
    if not isinstance(value, list):
        return _plain(value)
    if not value or not isinstance(value[0], str) or value[0] not in _DECODERS:
        raise ValueError(f"{value[:1]!r} is not a kind of value")
    try:
        return _DECODERS[value[0]](*value[1:])
    except (TypeError, struct.error, binascii.Error, AttributeError, RuntimeError, OverflowError) as error:
        raise ValueError(f"{value[0]!r}: {error}") from None


def decode_key(value: Any, depth: int = 0) -> Any:
    """Raises ValueError if the value was not made by encode_key()."""
    if isinstance(value, list) and value and value[0] in ("tuple", "frozenset"):
        if depth == DEEPEST_KEY:
            raise ValueError("a key is nested too deep")
        items = (decode_key(item, depth + 1) for item in value[1:])
        return tuple(items) if value[0] == "tuple" else frozenset(items)
    return decode(value)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        raise ValueError("an object of JSON is not a value")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not text")
    return value


def _number(value: Any) -> float:
    found = decode(value)
    if type(found) is not float:
        raise ValueError(f"{found!r} is not a float")
    return found


def _enum(name: Any, member: Any) -> Any:
    return _enum_class(name)[_text(member)]


def _enum_class(name: Any) -> type[enum.Enum]:
    cls = types.type_of(name)
    if cls is None or not issubclass(cls, enum.Enum):
        raise ValueError(f"the enum {name!r} is not registered; call weightstore.register_state_type() with its class")
    return cls


def _member(name: Any, member: Any) -> Any:
    try:
        return _enum(name, member)
    except KeyError:
        raise ValueError(f"the enum {name!r} has no member {member!r}") from None


def _torch_dtype(name: Any) -> Any:
    import torch

    found = getattr(torch, _text(name), None)
    if not isinstance(found, torch.dtype):
        raise ValueError(f"torch {torch.__version__} has no type {name!r}")
    return found


def _torch_size(*sizes: Any) -> Any:
    import torch

    return torch.Size(decode(size) for size in sizes)


def _torch_device(name: Any) -> Any:
    import torch

    return torch.device(_text(name))


def _numpy_scalar(dtype: Any, data: Any) -> Any:
    from . import arrays

    return arrays.decode_scalar(_text(dtype), bytes.fromhex(_text(data)))


def _numpy_dtype(name: Any) -> Any:
    from . import arrays

    return arrays.dtype_of(_text(name))


_DECODERS: dict[str, Callable[..., Any]] = {
    "int": lambda text: int(_text(text), 16),
    "float": lambda bits: float_of_bits(_text(bits)),
    "complex": lambda real, imag: complex(_number(real), _number(imag)),
    "bytes": lambda text: base64.b64decode(_text(text), validate=True),
    "enum": _member,
    "flags": lambda name, value: _enum_class(name)(decode(value)),
    "torch.dtype": _torch_dtype,
    "torch.Size": _torch_size,
    "torch.device": _torch_device,
    "numpy.dtype": _numpy_dtype,
    "numpy.scalar": _numpy_scalar,
}

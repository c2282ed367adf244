"""Element types: the names files use, and what numpy, torch and DLPack call the same thing."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any

from .. import _core

if TYPE_CHECKING:
    import numpy as np
    import torch

# The type each library shows a stored type as. What is missing has no counterpart there.
_NUMPY = {
    "BOOL": "bool",
    "BoolU8": "bool",
    "U8": "uint8",
    "I8": "int8",
    "I16": "int16",
    "U16": "uint16",
    "F16": "float16",
    "I32": "int32",
    "U32": "uint32",
    "F32": "float32",
    "Flex32": "float32",
    "C64": "complex64",
    "C128": "complex128",
    "F64": "float64",
    "I64": "int64",
    "U64": "uint64",
}
_ML_DTYPES = {
    "BF16": "bfloat16",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
}
_TORCH = {**_NUMPY, **_ML_DTYPES, "F4": "float4_e2m1fn_x2", "C32": "complex32"}

# Python-side names to stored types that can be written; where several types are shown alike, the one every format has.
_READ_ONLY = ("BoolU8", "Flex32", "C128")
NAME_OF_NUMPY = {shown: stored for stored, shown in (_NUMPY | _ML_DTYPES).items() if stored not in _READ_ONLY}
NAME_OF_TORCH = {**NAME_OF_NUMPY, "float4_e2m1fn_x2": "F4"}
# The names that libraries show, with those of types that are only read.
READ_AS = NAME_OF_TORCH | {"complex128": "C128", "complex32": "C32"}

# Names in text that mean one type to files and another to numpy, which counts bytes: what each of them may mean.
_AMBIGUOUS = {"i8": "'I8' or 'int64'", "u8": "'U8' or 'uint64'", "f4": "'F4' or 'float32'"}
# Names in text, in lower case: those of files, those of libraries, and the usual short ones.
_IN_TEXT = {
    **{name.lower(): name for name in _core.DTYPES},
    **READ_AS,
    "half": "F16",
    "fp16": "F16",
    "fp32": "F32",
    "double": "F64",
    "fp64": "F64",
}

# The types that the core casts, each to each; and those that can be cast at all.
CORE_FLOATS = ("F16", "BF16", "F32", "F64", "Flex32")
FLOATS = (*CORE_FLOATS, "F8_E4M3", "F8_E5M2")

# (code, bits, lanes)
DLPACK = {
    "I8": (0, 8, 1),
    "I16": (0, 16, 1),
    "I32": (0, 32, 1),
    "I64": (0, 64, 1),
    "U8": (1, 8, 1),
    "U16": (1, 16, 1),
    "U32": (1, 32, 1),
    "U64": (1, 64, 1),
    "F16": (2, 16, 1),
    "F32": (2, 32, 1),
    "Flex32": (2, 32, 1),
    "F64": (2, 64, 1),
    "BF16": (4, 16, 1),
    "C32": (5, 32, 1),
    "C64": (5, 64, 1),
    "C128": (5, 128, 1),
    "BOOL": (6, 8, 1),
    "BoolU8": (6, 8, 1),
    "F8_E4M3": (10, 8, 1),
    "F8_E4M3FNUZ": (11, 8, 1),
    "F8_E5M2": (12, 8, 1),
    "F8_E5M2FNUZ": (13, 8, 1),
    "F8_E8M0": (14, 8, 1),
    "F4": (17, 4, 2),
}

_DEQUANTIZED = ("QFloat", *_core.DEQUANTIZABLE)
_DEQUANTIZES = ".dequantize() or the adapter dequantize() makes numbers of it, "

# Read as U32 and compared with zero: no library has a boolean this wide.
WIDE_BOOL = "BoolU32"


def bits(name: str) -> int:
    """Bits of one element; 0 for quantized types."""
    return _core.DTYPES[name]


def is_kind_for(found: str, expected: str) -> bool:
    """Whether numbers of one type may become another by themselves: floats become floats or complex numbers, integers
    integers. Booleans also come from the integers that stand for them in formats without booleans."""
    kind = _kind(expected)
    return _kind(found) == kind or (kind == "C" and _kind(found) == "F") or (kind == "B" and found in ("U8", "U32"))


def _kind(name: str) -> str:
    """Of a stored type: B, I, F or C."""
    first = "F" if name == "BF16" or is_quantized(name) else name[0]
    return "I" if first == "U" else first


def stored_bytes(name: str, shape: Sequence[int]) -> int:
    """The bytes of a tensor of this type and shape, unless it is QFloat."""
    count = prod(shape)
    if name in _core.BLOCKS:
        elements, size = _core.BLOCKS[name]
        return count // elements * size
    return count * bits(name) // 8


def is_quantized(name: str) -> bool:
    """Whether tensors of the type have to be dequantized to be numbers: QFloat of Burn, Q4_K and its like of GGUF."""
    return name == "QFloat" or name in _core.BLOCKS


def byte_packing(name: str) -> int:
    """Elements that libraries show as one item: 2 for F4, else 1."""
    return 2 if name == "F4" else 1


@cache
def numpy_dtype(name: str) -> np.dtype[Any]:
    """The numpy type that shows a stored type. Raises TypeError when there is none."""
    import numpy as np

    if name in _NUMPY:
        return np.dtype(_NUMPY[name])
    if name == WIDE_BOOL:
        return np.dtype(np.uint32)
    if name in _ML_DTYPES:
        try:
            import ml_dtypes
        except ImportError:
            raise TypeError(
                f"numpy has no type for {name}: install ml_dtypes to get one, or use .torch() or .bytes()"
            ) from None
        shown: np.dtype[Any] = np.dtype(getattr(ml_dtypes, _ML_DTYPES[name]))
        return shown
    shows = ".torch() shows it, " if name in _TORCH else ""
    shows = _DEQUANTIZES if name in _DEQUANTIZED else shows
    raise TypeError(f"numpy has no type for {name}; {shows}.bytes() gives its bytes as stored")


@cache
def torch_dtype(name: str) -> torch.dtype:
    """The torch type that shows a stored type. Raises TypeError when there is none."""
    import torch

    shown = getattr(torch, "int32" if name == WIDE_BOOL else _TORCH.get(name, ""), None)
    if shown is None:
        shows = _DEQUANTIZES if name in _DEQUANTIZED else ""
        raise TypeError(f"torch {torch.__version__} has no type for {name}; {shows}.bytes() gives its bytes as stored")
    assert isinstance(shown, torch.dtype)
    return shown


def stored_name(dtype: object) -> str:
    """The name that files use for an element type. Every function that takes a type takes it in these forms:

    - text, in any letter case: a file's name ("BF16", "bf16"), a library's ("bfloat16", "torch.bfloat16"), or "half",
      "double", "fp16", "fp32", "fp64";
    - a torch.dtype;
    - what numpy takes for a type: np.float32, np.dtype("<f4"), ml_dtypes.bfloat16.

    Raises TypeError for anything else.
    """
    if isinstance(dtype, str):
        return _name_in_text(dtype)
    name = READ_AS.get(_library_name(dtype))
    if name is None:
        raise _no_type(dtype)
    return name


class DType(str):
    """The name that files use for an element type. Equal to every form of the same type that stored_name() takes:
    `handle.dtype == "bf16"`, `handle.dtype == torch.bfloat16`. In sets and dicts it is its name, as text."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str) and other in _core.DTYPES:
            return str.__eq__(self, other)
        try:
            return str.__eq__(self, stored_name(other))
        except TypeError:
            return NotImplemented

    def __ne__(self, other: object) -> bool:
        equal = self.__eq__(other)
        return equal if equal is NotImplemented else not equal

    __hash__ = str.__hash__


def _name_in_text(text: str) -> str:
    if text in _core.DTYPES:
        return text
    if text in _AMBIGUOUS:
        raise TypeError(f"{text!r} means one type to files and another to numpy; write {_AMBIGUOUS[text]}")
    name = _IN_TEXT.get(text.lower().removeprefix("torch."))
    if name is None:
        raise _no_type(text)
    return name


def _library_name(dtype: object) -> str:
    """What numpy or torch calls its type. Empty if this is not one."""
    text = str(dtype)
    if text.startswith("torch."):
        return text.removeprefix("torch.")
    if dtype is None:  # numpy's way to say float64
        return ""
    import numpy as np

    try:
        return np.dtype(dtype).name  # type: ignore[call-overload, no-any-return]
    except (TypeError, ValueError):
        return ""


def _no_type(dtype: object) -> TypeError:
    return TypeError(f"{dtype!r} is not an element type; types are {', '.join(_core.DTYPES)}")

"""GGUF files for tests: bytes that the writer of the gguf package would not write, and files that it does."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import gguf
import numpy as np

VALUE = gguf.GGUFValueType
TYPE = gguf.GGMLQuantizationType
# What the gguf package dequantizes and weightstore does, and what both only carry.
DEQUANTIZED = [
    TYPE[name]
    for name in "Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS TQ1_0 TQ2_0 MXFP4 NVFP4".split()
]
PLAIN = [TYPE[name] for name in "F32 F16 BF16 F64 I8 I16 I32 I64".split()]
CARRIED = [kind for kind in TYPE if kind not in DEQUANTIZED and kind not in PLAIN]


def text(value: str | bytes, order: str = "<") -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack(order + "Q", len(data)) + data


def entry(key: str | bytes, kind: int, value: bytes, order: str = "<") -> bytes:
    return text(key, order) + struct.pack(order + "I", kind) + value


def u32(key: str | bytes, value: int, order: str = "<") -> bytes:
    return entry(key, VALUE.UINT32, struct.pack(order + "I", value), order)


def array(kind: int, count: int, items: bytes, order: str = "<") -> bytes:
    return struct.pack(order + "IQ", kind, count) + items


def tensor(name: str | bytes, dims: Sequence[int], kind: int, offset: int, order: str = "<") -> bytes:
    """dims: the innermost one first, as in files."""
    return text(name, order) + struct.pack(f"{order}I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def file(
    entries: Sequence[bytes] = (),
    tensors: Sequence[bytes] = (),
    data: bytes = b"",
    *,
    version: int = 3,
    order: str = "<",
    counts: tuple[int, int] | None = None,
    alignment: int = 32,
) -> bytes:
    """counts: of tensors and entries, where the header shall lie."""
    head = b"GGUF" + struct.pack(order + "IQQ", version, *(counts or (len(tensors), len(entries))))
    head += b"".join(entries) + b"".join(tensors)
    return head + bytes(-len(head) % alignment) + data


def random_blocks(kind: gguf.GGMLQuantizationType, rows: int, blocks: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Rows of any bytes."""
    size = gguf.GGML_QUANT_SIZES[kind][1]
    return np.random.default_rng(seed).integers(0, 256, (rows, blocks * size), np.uint8)


def write(path: Any, tensors: dict[str, Any], kinds: dict[str, Any] | None = None, **entries: Any) -> None:
    """With the writer of the gguf package. kinds: of tensors that are bytes of blocks."""
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in entries.items():
        writer.add_string(key, value)
    for name, value in tensors.items():
        writer.add_tensor(name, value, raw_dtype=(kinds or {}).get(name))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

"""What the golden files hold. The values follow from the names, so that no file says what another must contain."""

from __future__ import annotations

import hashlib
import math

#: Element type to bits.
SAFETENSORS_TYPES = {
    "BOOL": 8, "U8": 8, "I8": 8, "U16": 16, "I16": 16, "U32": 32, "I32": 32, "U64": 64, "I64": 64,
    "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
    "F16": 16, "BF16": 16, "F32": 32, "F64": 64, "C64": 64,
}  # fmt: skip
BURNPACK_TYPES = {
    "BOOL": 8, "U8": 8, "I8": 8, "U16": 16, "I16": 16, "U32": 32, "I32": 32, "U64": 64, "I64": 64,
    "F16": 16, "BF16": 16, "Flex32": 32, "F32": 32, "F64": 64,
}  # fmt: skip
SHAPES = {"matrix": (4, 6), "scalar": (), "empty": (0, 3)}
METADATA = {"format": "pt", "épique": "12", "text": 'quotes " and\nlines'}
SCALARS = {"step": 12, "lr": 0.1, "big": 2**63 + 5, "negative": -3, "on": True}

#: One scheme that every revision of Burn can spell: 8-bit symmetric values in 32-bit words, one F32 scale.
QUANTIZED_SHAPE = (4, 8)
QUANTIZED_BYTES = 4 * 8 + 4


def values(name: str, nbytes: int, boolean: bool = False) -> bytes:
    drawn = hashlib.shake_128(name.encode()).digest(nbytes)
    return bytes(byte & 1 for byte in drawn) if boolean else drawn


def tensors_of(types: dict[str, int]) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """One tensor of every type and shape: ``{name: (dtype, shape, bytes)}``."""
    found = {}
    for dtype, bits in types.items():
        for kind, shape in SHAPES.items():
            if math.prod(shape) * bits % 8 == 0:
                name = f"layers.0.{dtype}.{kind}"
                found[name] = (dtype, shape, values(name, math.prod(shape) * bits // 8, dtype == "BOOL"))
    return found


def shard_set() -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    names = [f"block.{i}.{part}" for i in range(4) for part in ("weight", "bias")]
    shapes = {"weight": (16, 8), "bias": (16,)}
    return {
        name: ("F32", shapes[name.rpartition(".")[2]], values(name, 4 * math.prod(shapes[name.rpartition(".")[2]])))
        for name in names
    }


#: The ids of a table, over the whole range: both ends, neighbours and strangers.
TABLE_IDS = [-(2**63), -7, -1, 0, 1, 2, 65535, 65536, 65537, 10**6, 10**12, 2**63 - 1]
CHILD_IDS = {"item": [0, 1, 5, 65536], "shop": [1, 5, 2**52 - 1]}


def row(table: str, slot: str, id: int, width: int) -> list[float]:
    """The row of one id, in numbers that float32 holds exactly."""
    start = int.from_bytes(values(f"{table}/{slot}/{id}", 2), "little")
    return [float(start + column) for column in range(width)]

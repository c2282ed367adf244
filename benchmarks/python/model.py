"""The models that are saved and loaded: random bytes, the same on every run.

Their files are written and read here by hand, so that no contestant checks itself.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

LAYERS = 32
DTYPE_BYTES = {"I64": 8, "F32": 4, "F16": 2, "BF16": 2}

TORCH_DTYPES = {"I64": "int64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}

Shapes = dict[str, tuple[str, tuple[int, ...]]]


@dataclass(frozen=True)
class Model:
    name: str
    shapes: Callable[[int], Shapes]  # of the bytes that are asked for, where its size can be chosen


def decoder_shapes(total_bytes: int) -> Shapes:
    """A decoder of 32 layers whose width makes it about `total_bytes` large."""
    width = max(24, round(math.sqrt(total_bytes / (24 * LAYERS + 80)) / 24) * 24)
    hidden = width * 8 // 3
    found: Shapes = {
        "model.embed_tokens.weight": ("F32", (10 * width, width)),
        "lm_head.weight": ("F32", (10 * width, width)),
        "model.norm.weight": ("F32", (width,)),
    }
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}"
        for part in "qkvo":
            found[f"{prefix}.self_attn.{part}_proj.weight"] = ("BF16", (width, width))
        found[f"{prefix}.mlp.gate_proj.weight"] = ("BF16", (hidden, width))
        found[f"{prefix}.mlp.up_proj.weight"] = ("BF16", (hidden, width))
        found[f"{prefix}.mlp.down_proj.weight"] = ("BF16", (width, hidden))
        found[f"{prefix}.input_layernorm.weight"] = ("F32", (width,))
        found[f"{prefix}.post_attention_layernorm.weight"] = ("F32", (width,))
    return found


def many_shapes(count: int) -> Shapes:
    """Small tensors with the names of a large mixture of experts: a file that is mostly header."""
    parts = ("gate_proj", "up_proj", "down_proj")
    found: Shapes = {}
    for number in range(count):
        layer, expert = divmod(number // len(parts), 256)
        name = f"model.layers.{layer}.mlp.experts.{expert}.{parts[number % len(parts)]}.weight"
        found[name] = ("BF16", (4, 4))
    return found


def square_shapes() -> Shapes:
    """20 layers of 2048 x 2048."""
    return {f"layers.{layer}.weight": ("F32", (2048, 2048)) for layer in range(20)}


def resnet18_shapes() -> Shapes:
    """The names and shapes of torchvision's ResNet-18: many small tensors, and buffers that are no parameters."""
    found: Shapes = {}

    def convolution(name: str, norm: str, channels_in: int, channels: int, kernel: int) -> None:
        found[f"{name}.weight"] = ("F32", (channels, channels_in, kernel, kernel))
        for part in ("weight", "bias", "running_mean", "running_var"):
            found[f"{norm}.{part}"] = ("F32", (channels,))
        found[f"{norm}.num_batches_tracked"] = ("I64", ())

    convolution("conv1", "bn1", 3, 64, 7)
    before = 64
    for layer, channels in enumerate((64, 128, 256, 512), 1):
        for block in range(2):
            prefix = f"layer{layer}.{block}"
            convolution(f"{prefix}.conv1", f"{prefix}.bn1", before, channels, 3)
            convolution(f"{prefix}.conv2", f"{prefix}.bn2", channels, channels, 3)
            if before != channels:
                convolution(f"{prefix}.downsample.0", f"{prefix}.downsample.1", before, channels, 1)
            before = channels
    found["fc.weight"] = ("F32", (1000, 512))
    found["fc.bias"] = ("F32", (1000,))
    return found


DECODER = Model("model", decoder_shapes)
SQUARES = Model("squares", lambda _: square_shapes())
RESNET18 = Model("resnet18", lambda _: resnet18_shapes())


def many(count: int) -> Model:
    return Model(f"many-{count}", lambda _: many_shapes(count))


def nbytes(dtype: str, shape: tuple[int, ...]) -> int:
    return DTYPE_BYTES[dtype] * math.prod(shape)


def write(path: Path, wanted: Shapes) -> int:
    """Writes a SafeTensors file of random bytes; returns the bytes of its header."""
    order = sorted(wanted, key=lambda name: (-DTYPE_BYTES[wanted[name][0]], name))
    header: dict[str, object] = {}
    position = 0
    for name in order:
        dtype, shape = wanted[name]
        end = position + nbytes(dtype, shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [position, end]}
        position = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    random = np.random.Generator(np.random.PCG64(20))
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        while position > 0:
            block = min(position, 16 << 20)
            file.write(random.bytes(block))
            position -= block
    return 8 + len(text)


def header_bytes(path: Path) -> int:
    """Bytes before the data of a SafeTensors or Burnpack file."""
    with path.open("rb") as file:
        start = file.read(10)
    if path.suffix == ".bpk":
        return 10 + int(struct.unpack_from("<I", start, 6)[0])
    return 8 + int(struct.unpack_from("<Q", start)[0])


def mapped(path: Path) -> dict[str, tuple[str, tuple[int, ...], np.ndarray]]:
    """Dtype, shape and bytes of every tensor of a SafeTensors file, in the order of the data."""
    data_start = header_bytes(path)
    with path.open("rb") as file:
        file.seek(8)
        header = json.loads(file.read(data_start - 8))
    header.pop("__metadata__", None)
    data = np.memmap(path, dtype=np.uint8, mode="r", offset=data_start)
    found = {}
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, end = entry["data_offsets"]
        found[name] = (entry["dtype"], tuple(entry["shape"]), data[begin:end])
    return found

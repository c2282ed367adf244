"""``weightstore inspect --sample``: a small file to look at, and what to look at."""

from __future__ import annotations

import struct
from array import array

from .output import safe

_TENSORS = (("linear.weight", [3, 4], range(12)), ("linear.bias", [3], (0, 0, 0)))


def write_sample(path: str) -> int:
    """Writes a Burnpack file of two tensors, and prints where its parts are. Refuses to replace a file."""
    from .. import _core
    from .._files.formats import format_to_write
    from ..errors import make

    if format_to_write(path) != "burnpack":
        raise make("invalid_argument", "the sample is a Burnpack file; give a name that ends in .bpk", path=path)
    writer = _core.Writer()
    for name, shape, numbers in _TENSORS:
        writer.add(name, "F32", shape, _core.Producer.buffer(array("f", numbers)))
    writer.set_metadata({"made_by": "weightstore inspect --sample"})
    writer.write_file(path, "burnpack", overwrite=False)
    _explain(path)
    return 0


def _explain(path: str) -> None:
    with open(path, "rb") as file:
        data = file.read()
    magic, version, length = struct.unpack("<4sHI", data[:10])
    shown = safe(path)
    print(f"{shown}: {len(data)} bytes, magic {magic.decode()}, version {version}")
    print(f"  header    hexdump -C -n 10 {shown}")
    print(f"  metadata  hexdump -C -s 10 -n {length} {shown}    # CBOR")
    begin = 10 + length
    for name, shape, numbers in _TENSORS:
        begin += -begin % 256  # data begins at multiples of 256
        print(f"  {name}  hexdump -C -s {begin} -n {4 * len(numbers)} {shown}    # F32 {shape}")
        begin += 4 * len(numbers)
    print("Try:")
    for verb in (f"inspect {shown}", f"inspect {shown} --hexdump", f"list {shown}", f"show {shown} 'linear.weight[0]'"):
        print(f"  weightstore {verb}")
    print(f"  weightstore convert {shown} sample.safetensors")

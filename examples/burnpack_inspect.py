"""burnpack_inspect.py [FILE]: writes a small Burnpack file, and says where its parts are and how to look at them."""

import struct
import sys
from pathlib import Path

import numpy as np

import weightstore.numpy


def align(position: int) -> int:
    """The next multiple of 256, where data begins."""
    return -(-position // 256) * 256


def main() -> None:
    path = Path(sys.argv[1] if len(sys.argv) > 1 else "sample.bpk")
    tensors = {"linear.weight": np.arange(12, dtype=np.float32).reshape(3, 4), "linear.bias": np.zeros(3, np.float32)}
    weightstore.numpy.save_file(tensors, path, metadata={"made_by": "burnpack_inspect"})
    magic, version, length = struct.unpack("<4sHI", path.read_bytes()[:10])
    print(f"{path}: {path.stat().st_size} bytes, magic {magic.decode()}, version {version}")
    print(f"  header    hexdump -C -n 10 {path}")
    print(f"  metadata  hexdump -C -s 10 -n {length} {path}    # CBOR")
    begin = align(10 + length)
    for name, array in tensors.items():  # in the order in which they were written
        print(f"  {name}  hexdump -C -s {begin} -n {array.nbytes} {path}    # {array.dtype} {list(array.shape)}")
        begin = align(begin + array.nbytes)
    print(f"All tensors: weightstore list {path}")


if __name__ == "__main__":
    main()

"""Memory: opening costs a few times the header, saving a few blocks."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys

import pytest

# Prints how many bytes the resident memory of the process peaked above where it was before `call`.
MEASURE = """
import gc, sys

def status(key):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(key + ":"))

def peak_of(call):
    gc.collect()
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the peak starts anew
    before = status("VmRSS")
    result = call()
    peak = status("VmHWM") - before
    print(peak)
    return result
"""
MB = 10**6


def peak(code: str, *args: object) -> int:
    command = [sys.executable, "-c", MEASURE + code, *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True)
    if "clear_refs" in done.stderr:
        pytest.skip("the kernel does not let us reset the peak of the resident memory")
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split()[-1])


def write_safetensors(path, header: bytes, data: int) -> int:
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + data)
    return len(header)


OPEN = """
import weightstore
from weightstore import _core
open_file = weightstore.open  # imports more modules, which take memory, too
def call():
    try:
        return open_file(sys.argv[1], backend=sys.argv[2])
    except weightstore.StoreError as error:
        return error
peak_of(call)
"""

COUNT = 200_000
HEADERS = {
    "many tensors": (
        json.dumps(
            {
                f"layers.{i}.weight": {"dtype": "U8", "shape": [2, 2], "data_offsets": [4 * i, 4 * i + 4]}
                for i in range(COUNT)
            },
            separators=(",", ":"),
        ).encode(),
        4 * COUNT,
    ),
    "the shortest entries": (
        json.dumps(
            {f"{i:x}": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]} for i in range(COUNT)},
            separators=(",", ":"),
        ).encode(),
        0,
    ),
    "one shape of a million dimensions": (
        b'{"t":{"dtype":"U8","shape":[' + b"1," * 2_000_000 + b'1],"data_offsets":[0,1]}}',
        1,
    ),
    "metadata of many keys": (
        json.dumps({"__metadata__": {f"{i:x}": "" for i in range(COUNT)}}, separators=(",", ":")).encode(),
        0,
    ),
    "deep nesting": (b'{"t":{"x":' + b"[" * 5_000_000, 0),
    "an ignored field": (
        b'{"t":{"x":[' + b"{}," * 2_000_000 + b'{}],"dtype":"U8","shape":[0],"data_offsets":[0,0]}}',
        0,
    ),
    "one long name": (b'{"' + b"n" * 5_000_000 + b'":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}', 0),
    "escaped names": (
        b'{"' + b"\\u0041" * 800_000 + b'":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}',
        0,
    ),
}


@pytest.mark.parametrize("backend", ["mmap", "pread"])
@pytest.mark.parametrize("kind", HEADERS)
def test_opening_costs_at_most_eight_headers(tmp_path, kind, backend):
    path = tmp_path / "m.safetensors"
    length = write_safetensors(path, *HEADERS[kind])
    assert length > 2 * MB
    assert peak(OPEN, path, backend) <= 8 * length + 4 * MB


def test_opening_burnpack_costs_at_most_eight_headers(tmp_path):
    from weightstore import _core

    path = tmp_path / "m.bpk"
    writer = _core.Writer()
    for i in range(100_000):
        writer.add_deferred(f"layers.{i}.weight", "U8", [0], bytes)
    writer.write_file(path, "burnpack")
    length = os.path.getsize(path)
    assert peak(OPEN, path, "mmap") <= 8 * length + 4 * MB


def test_a_shape_too_large_to_be_true(tmp_path):
    path = tmp_path / "m.safetensors"
    write_safetensors(path, b'{"t":{"dtype":"U8","shape":[1099511627776],"data_offsets":[0,1099511627776]}}', 10)
    assert peak(OPEN, path, "pread") <= 4 * MB


SAVE = """
import numpy as np
import weightstore.numpy
big = np.ones((5000, 8000), np.float64)
tensors = {
    "contiguous": big,
    "transposed": big.T,
    "reversed": big[::-1, ::-1],
    "big-endian": big.view(">f8"),
}
tensors = {sys.argv[2]: tensors[sys.argv[2]]}
peak_of(lambda: weightstore.numpy.save_file(tensors, sys.argv[1], durable=sys.argv[3] == "durable"))
"""


@pytest.mark.parametrize("sync", ["durable", "quick"])
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "reversed", "big-endian"])
def test_saving_costs_a_few_blocks(tmp_path, layout, sync):
    assert peak(SAVE, tmp_path / "m.safetensors", layout, sync) < 64 * MB


def test_deferred_tensors_are_in_memory_one_chunk_at_a_time(tmp_path):
    code = """
import weightstore.numpy
from weightstore import DeferredTensor
def produce():
    for _ in range(300):
        yield bytes(1 << 20)
tensors = {str(i): DeferredTensor("U8", (300 << 20,), produce) for i in range(2)}
peak_of(lambda: weightstore.numpy.save_file(tensors, sys.argv[1], durable=False))
"""
    assert peak(code, tmp_path / "m.safetensors") < 64 * MB


def test_slices_of_a_large_tensor(tmp_path):
    path = tmp_path / "m.safetensors"
    write_safetensors(path, b'{"t":{"dtype":"U8","shape":[1000,4000000],"data_offsets":[0,4000000000]}}', 4 * 10**9)
    code = """
import weightstore
file = weightstore.open(sys.argv[1], backend="pread")
file["t"][0, :10].numpy()
peak_of(lambda: (file["t"][::500, :1000].numpy(), file["t"][7].bytes()))
"""
    assert peak(code, path) < 32 * MB

"""Reading more than there is memory for is a MemoryError; the process lives. Memory that is full of page cache is free."""

from __future__ import annotations

import importlib.util
import json
import struct
import subprocess
import sys

import pytest

import weightstore
from support.memory_group import memory_group
from weightstore import _core

MIB = 1 << 20
LIMIT = 192 * MIB
FITS = 80 * MIB  # beside the interpreter
TOO_LARGE = 300 * MIB
HUGE = 1 << 50  # on any machine


def write_sparse(path, sizes: dict[str, int]) -> None:
    header, end = {}, 0
    for name, size in sizes.items():
        header[name] = {"dtype": "U8", "shape": [size], "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)


READS = {
    "load": lambda file: file.load(),
    "load of torch tensors": lambda file: file.load(framework="torch"),
    "array": lambda file: file["t"].numpy(),
    "tensor": lambda file: file["t"].torch(),
    "slice": lambda file: file["t"][1:].numpy(),
    "bytes": lambda file: file["t"].bytes(),
    "bytes of a slice": lambda file: file["t"][1:].bytes(),
    "pager": lambda file: weightstore.Pager(file).acquire("t"),
}


@pytest.mark.parametrize("read", READS)
def test_what_no_machine_has(tmp_path, read):
    if "torch" in read or "tensor" in read:
        pytest.importorskip("torch")
    path = tmp_path / "m.safetensors"
    try:
        write_sparse(path, {"t": 1 << 42})
    except OSError as error:
        pytest.skip(f"no file of this size can be made: {error}")
    file = weightstore.open(path, backend="pread")
    with pytest.raises(weightstore.OutOfMemory, match="needs .* of memory, but only .* are available") as caught:
        READS[read](file)
    assert isinstance(caught.value, MemoryError)
    assert (caught.value.path, caught.value.tensor) == (str(path), "t")


def test_tensors_are_added_up(tmp_path):
    path = tmp_path / "m.safetensors"
    try:
        write_sparse(path, {str(i): 1 << 32 for i in range(1000)})
    except OSError as error:
        pytest.skip(f"no file of this size can be made: {error}")
    with pytest.raises(MemoryError, match="needs 4096000 MiB") as caught:
        weightstore.open(path).load()
    assert (caught.value.path, caught.value.tensor) == (str(path), None)


def test_memory_of_any_size():
    with pytest.raises(MemoryError):
        _core.allocate(HUGE)
    assert len(_core.allocate(1000)) == 1000


# Joins a group, and does each call with the group full of page cache.
IN_GROUP = """
import json, os, sys
import numpy as np
import weightstore, weightstore.numpy
group, filler, path, limit, *names = sys.argv[1:]
if "store" in names:
    import torch  # its own memory is not what is measured
with open(group + "/cgroup.procs", "w") as file:
    file.write(str(os.getpid()))

def fill_with_page_cache():
    for _ in range(2):  # pages that were read twice are the last ones to be dropped
        with open(filler, "rb", buffering=0) as file:
            while file.read(1 << 20):
                pass
    for name in ("memory.usage_in_bytes", "memory.current"):
        if os.path.exists(f"{group}/{name}"):
            assert int(open(f"{group}/{name}").read()) > 0.8 * int(limit)

file = weightstore.open(path, backend="pread")
size = file["t"].nbytes

def small_parts():
    step = 4 << 20
    return [file["t"][begin : begin + step].numpy() for begin in range(0, size, step)]

def store():
    module = torch.nn.Module()
    module.t = torch.nn.Parameter(torch.empty(size, dtype=torch.uint8, device="meta"), requires_grad=False)
    weightstore.SafetensorsStore.from_file(path).apply_to(module)
    return module

calls = {
    "load": file.load,
    "array": file["t"].numpy,
    "slice": file["t"][1:].numpy,
    "small parts": small_parts,
    "bytes": file["t"].bytes,
    "load_file": lambda: weightstore.numpy.load_file(path, backend="pread"),
    "pager": lambda: weightstore.Pager(path).acquire("t"),
    "store": store,
}

def outcome(call):
    fill_with_page_cache()
    try:
        call()
        return "done"
    except weightstore.OutOfMemory:
        return "error"

print(json.dumps({name: outcome(calls[name]) for name in names}))
"""

CALLS = ["load", "array", "slice", "small parts", "bytes", "load_file", "pager"]
if importlib.util.find_spec("torch") is not None:
    CALLS.append("store")


def run_in_group(tmp_path, size: int) -> dict[str, str]:
    write_sparse(tmp_path / "m.safetensors", {"t": size})
    with open(tmp_path / "filler", "wb") as filler:
        filler.truncate(LIMIT)
    with memory_group(LIMIT) as group:
        paths = [group, tmp_path / "filler", tmp_path / "m.safetensors"]
        command = [sys.executable, "-c", IN_GROUP, *map(str, paths), str(LIMIT), *CALLS]
        done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, (done.returncode, done.stderr)
    return json.loads(done.stdout)


def test_page_cache_is_available(tmp_path):
    assert run_in_group(tmp_path, FITS) == dict.fromkeys(CALLS, "done")


def test_more_than_the_group_has_is_an_error(tmp_path):
    assert run_in_group(tmp_path, TOO_LARGE) == dict.fromkeys(CALLS, "error")

"""Progress is told, answers are heard, Ctrl-C works."""

from __future__ import annotations

import subprocess
import sys
import types

import numpy as np
import pytest

import weightstore
import weightstore.numpy
from weightstore import errors

TENSORS = {f"t{i}": np.full(300_000, i, np.float64) for i in range(8)}
TOTAL = sum(array.nbytes for array in TENSORS.values())


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("progress") / "m.safetensors"
    weightstore.numpy.save_file(TENSORS, path, checksums=True)
    return path


def save(path, progress):
    weightstore.numpy.save_file(TENSORS, path.with_name("saved.safetensors"), progress=progress)


def save_shards(path, progress):
    index = path.with_name("sharded.safetensors.index.json")
    weightstore.numpy.save_file(TENSORS, index, max_shard_size="5MB", progress=progress)


def load(path, progress):
    weightstore.open(path).load(progress=progress)


def load_file(path, progress):
    weightstore.numpy.load_file(path, progress=progress)


def load_into(path, progress):
    weightstore.open(path).load_into({name: np.empty_like(array) for name, array in TENSORS.items()}, progress=progress)


def verify(path, progress):
    weightstore.open(path).verify(progress=progress)


def convert(path, progress):
    weightstore.convert(path, path.with_name("converted.bpk"), overwrite=True, progress=progress)


OPERATIONS = [save, save_shards, load, load_file, load_into, verify, convert]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_progress_is_told(path, operation):
    seen = []
    operation(path, lambda done, total, name: seen.append((done, total, name)))
    done, total, name = zip(*seen, strict=True)
    assert list(done) == sorted(done)
    assert done[-1] == total[-1] >= TOTAL
    assert len(set(total)) == 1
    assert set(name) <= {*TENSORS, ""}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_false_cancels(path, operation):
    with pytest.raises(errors.OperationCancelled):
        operation(path, lambda *args: False)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_none_and_zero_do_not_cancel(path, operation):
    operation(path, lambda *args: None)
    operation(path, lambda *args: 0)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_what_it_raises_is_raised_again(path, operation):
    class Bored(Exception):
        pass

    error = Bored("enough")

    def progress(*args):
        raise error

    with pytest.raises(Bored) as caught:
        operation(path, progress)
    assert caught.value is error


def test_a_cancelled_save_leaves_nothing(tmp_path):
    target = tmp_path / "m.safetensors"
    target.write_bytes(b"old")
    with pytest.raises(errors.OperationCancelled):
        weightstore.numpy.save_file(TENSORS, target, progress=lambda done, total, name: done < total // 2)
    assert target.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["m.safetensors"]


def test_true_shows_a_bar_when_tqdm_is_there(path, monkeypatch):
    bars = []

    class Bar:
        n = 0
        total = None

        def __init__(self, **options):
            bars.append(self)

        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

        def set_postfix_str(self, text, refresh):
            pass

        def update(self, n):
            self.n += n

    monkeypatch.setitem(sys.modules, "tqdm", types.ModuleType("tqdm"))
    auto = types.ModuleType("tqdm.auto")
    auto.tqdm = Bar
    monkeypatch.setitem(sys.modules, "tqdm.auto", auto)
    load(path, True)
    assert bars[0].n == bars[0].total == TOTAL

    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    load(path, True)
    with pytest.raises(TypeError, match="progress"):
        load(path, "yes")


def test_a_callback_may_use_the_library(path):
    """The GIL and all locks are free while a callback runs."""
    inner = []
    load(path, lambda *args: inner.append(weightstore.open(path)["t1"][0].numpy()))
    assert set(map(float, inner)) == {1.0}


WHILE_WRITING = """
import os, signal, sys, threading
import weightstore.numpy
from weightstore import DeferredTensor

signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job would ignore it
block = bytes(1 << 20)

def slow():
    # The interrupt comes once the write is under way; the write would go on for a minute.
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    pause = threading.Event()
    for _ in range(600):
        pause.wait(0.1)
        yield block

try:
    weightstore.numpy.save_file({"t": DeferredTensor("U8", (600 << 20,), slow)}, sys.argv[1])
except KeyboardInterrupt:
    sys.exit(0 if os.listdir(os.path.dirname(sys.argv[1])) == [] else 3)
sys.exit(4)
"""

# One call of the core that reads 5 GB of holes: no Python code runs until it ends.
WHILE_READING = """
import ctypes, json, mmap, os, signal, struct, sys, threading
import weightstore

signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job would ignore it

size, count = 5_000_000, 1_000
header = {str(i): {"dtype": "U8", "shape": [size], "data_offsets": [i * size, i * size + size]} for i in range(count)}
header = json.dumps(header).encode()
with open(sys.argv[1], "wb") as file:
    file.write(struct.pack("<Q", len(header)) + header)
    file.truncate(8 + len(header) + size * count)
reader = weightstore._core.Reader.open(sys.argv[1])
# Memory that is only an address until it is written to.
MAP_NORESERVE = 0x4000
room = mmap.mmap(-1, size * count, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE)
address = ctypes.addressof(ctypes.c_char.from_buffer(room))
threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    reader.read_many([(i, address + i * size, size) for i in range(count)])
except KeyboardInterrupt:
    sys.exit(0)
sys.exit(4)
"""


def test_ctrl_c_while_writing(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", WHILE_WRITING, tmp_path / "m.safetensors"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_ctrl_c_while_reading(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", WHILE_READING, tmp_path / "m.safetensors"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr

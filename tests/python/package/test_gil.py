"""Other Python threads run while files are read and written."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import weightstore
import weightstore.numpy

SIZE = 16 << 20  # elements of 8 bytes


class Counter(threading.Thread):
    """Counts how often a Python thread gets its turn."""

    def __init__(self):
        super().__init__(daemon=True)
        self.count = 0
        self.stopped = False

    def run(self):
        pause = threading.Event()
        while not self.stopped:
            self.count += 1
            pause.wait(0.0005)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("gil") / "m.safetensors"
    weightstore.numpy.save_file({"t": np.arange(SIZE)}, path, checksums=True, durable=False)
    return path


def save(path):
    weightstore.numpy.save_file(
        {"t": np.arange(SIZE).reshape(4096, -1).T}, path.with_name("saved.safetensors"), durable=False
    )


def load(path):
    weightstore.open(path).load()


def read_bytes(path):
    weightstore.open(path, backend="pread")["t"].bytes()


def read_slice(path):
    weightstore.open(path, backend="pread")["t"][::2].numpy()


def verify(path):
    weightstore.open(path, verify="full")


def convert(path):
    weightstore.convert(path, path.with_name("converted.bpk"), overwrite=True, durable=False)


@pytest.mark.parametrize("operation", [save, load, read_bytes, read_slice, verify, convert])
def test_the_gil_is_released(path, operation):
    counter = Counter()
    old = sys.getswitchinterval()
    # A thread that holds the GIL may keep it for an hour: whatever the other one counts, it counts because we let go.
    sys.setswitchinterval(3600)
    try:
        counter.start()
        while counter.count == 0:
            threading.Event().wait(0.001)
        before = counter.count
        for _ in range(20):
            operation(path)
            if counter.count > before + 3:
                break
        counted = counter.count - before
    finally:
        counter.stopped = True
        sys.setswitchinterval(old)
        counter.join()
    assert counted > 3


def test_bindings_take_the_gil_in_one_way():
    """pybind11's own guards abort the process when the interpreter ends meanwhile; those of gil.h do not."""
    folder = Path(__file__).parents[3] / "cpp" / "python"
    found = [
        file.name
        for file in sorted(folder.glob("**/*.*"))
        if file.stem != "gil" and "gil_scoped_" in file.read_text(encoding="utf-8")
    ]
    assert found == []

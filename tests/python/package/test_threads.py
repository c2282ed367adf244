"""One File, many threads."""

from __future__ import annotations

import io
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import weightstore
import weightstore.numpy

TENSORS = {f"t{i}": np.full((20, 50), i, np.float32) for i in range(50)}


@pytest.fixture(autouse=True)
def eager_switching():
    old = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(old)


def sources(tmp_path):
    path = tmp_path / "m.safetensors"
    weightstore.numpy.save_file(TENSORS, path, checksums=True)
    yield weightstore.open(path)
    yield weightstore.open(path, backend="pread", verify="lazy")
    yield weightstore.open(io.BytesIO(path.read_bytes()))


def test_reading_one_file(tmp_path):
    for file in sources(tmp_path):
        barrier = threading.Barrier(4)

        def work(seed, file=file, barrier=barrier):
            barrier.wait()
            for step in range(30):
                name = f"t{(seed * 7 + step) % 50}"
                np.testing.assert_array_equal(file[name].numpy(), TENSORS[name])
                np.testing.assert_array_equal(file[name][::-3, 7].numpy(), TENSORS[name][::-3, 7])
                if step % 10 == 0:
                    assert len(file.load()) == 50
                    assert list(file) == sorted(TENSORS)
            return True

        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(work, range(4)))


def test_saving_at_once(tmp_path):
    def work(number):
        path = tmp_path / f"m{number}.safetensors"
        for _ in range(5):
            weightstore.numpy.save_file(TENSORS, path, durable=False)
            for name, array in weightstore.numpy.load_file(path).items():
                np.testing.assert_array_equal(array, TENSORS[name])
        return path.read_bytes()

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(work, range(4)))
    assert len(set(results)) == 1


def test_closing_while_others_read(tmp_path):
    path = tmp_path / "m.safetensors"
    weightstore.numpy.save_file(TENSORS, path)
    for _ in range(20):
        file = weightstore.open(path)

        def work(file=file):
            try:
                while True:
                    np.testing.assert_array_equal(file["t3"].numpy(), TENSORS["t3"])
            except ValueError as error:
                return str(error)

        with ThreadPoolExecutor(3) as pool:
            waiting = [pool.submit(work) for _ in range(3)]
            file.close()
            assert {future.result() for future in waiting} == {"File is closed"}

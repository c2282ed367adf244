"""Raw sources, sources that fail, files that change, and threads."""

from __future__ import annotations

import io
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import weightstore
import weightstore.numpy
from weightstore import LayerPager, Pager

DATA = bytes(range(256)) * 4
MAP = {"first": (0, 100), "second": (100, 200), "third": (5, 10), "empty": (1024, 0)}


def check(pager):
    for name, (offset, size) in MAP.items():
        with pager.acquire(name) as tensor:
            assert tensor.bytes() == DATA[offset : offset + size]
            assert tensor.dtype is None
            assert tensor.shape is None
            assert tensor.numpy().tobytes() == DATA[offset : offset + size]


def test_every_kind_of_raw_source(tmp_path):
    path = tmp_path / "raw"
    path.write_bytes(DATA)
    with open(path, "rb") as file:
        for source in (
            path,
            str(path),
            DATA,
            np.frombuffer(DATA, np.uint8),
            io.BytesIO(DATA),
            file,
            lambda offset, size: DATA[offset : offset + size],
            lambda offset, size: memoryview(DATA)[offset : offset + size],
        ):
            for budget in (0, 150, None):
                check(LayerPager(source, MAP, budget, ["third"]))


def test_memory_is_not_copied():
    data = np.arange(1000, dtype=np.uint8)
    pager = LayerPager(data, {"x": (10, 20)})
    assert pager.acquire("x").numpy().ctypes.data == data.ctypes.data + 10


def test_entries_beyond_the_end(tmp_path):
    path = tmp_path / "raw"
    path.write_bytes(b"12345")
    with pytest.raises(weightstore.OffloadEof) as caught:
        LayerPager(path, {"t": (0, 100), "u": (3, 2), "v": (6, 1)}, 100, ())
    error = caught.value
    assert (error.offset, error.needed, error.available, error.tensor) == (0, 100, 5, "t")
    assert isinstance(error, (weightstore.PagerError, EOFError))
    assert "'v'" in str(error)
    assert "'u'" not in str(error)


def test_a_file_cut_short(tmp_path):
    path = tmp_path / "raw"
    path.write_bytes(DATA)
    pager = LayerPager(path, MAP)
    os.truncate(path, 150)
    with pytest.raises(weightstore.OffloadEof) as caught:
        pager.acquire("second")
    assert (caught.value.offset, caught.value.needed, caught.value.available) == (100, 200, 50)
    assert caught.value.path == str(path)
    assert pager.acquire("first").bytes() == DATA[:100]


def test_a_file_that_is_replaced(tmp_path):
    path = tmp_path / "m.safetensors"
    weightstore.numpy.save_file({"x": np.zeros(10), "y": np.zeros(10)}, path)
    pager = Pager(path)
    pager.acquire("x")
    weightstore.numpy.save_file({"x": np.ones(10), "y": np.ones(10)}, path)
    assert pager.acquire("y").numpy().sum() == 0


def test_a_missing_file(tmp_path):
    for make in (Pager, lambda path: LayerPager(path, MAP)):
        with pytest.raises(FileNotFoundError):
            make(tmp_path / "none")


def test_callables_that_fail():
    answers = {0: b"", 100: KeyError("mine"), 5: b"x" * 11}

    def read(offset, size):
        answer = answers.get(offset, DATA[offset : offset + size])
        if isinstance(answer, Exception):
            raise answer
        return answer

    pager = LayerPager(read, MAP)
    with pytest.raises(weightstore.OffloadEof) as caught:
        pager.acquire("first")
    assert (caught.value.needed, caught.value.available) == (100, 0)
    with pytest.raises(KeyError, match="mine"):
        pager.acquire("second")
    with pytest.raises(weightstore.InvalidArgument, match="got 11"):
        pager.acquire("third")
    assert pager.resident_count == 0
    assert pager.stats()["load_errors"] == 3
    answers.clear()
    check(pager)


def test_not_a_buffer():
    with pytest.raises(TypeError):
        LayerPager(lambda offset, size: 5, MAP).acquire("first")


def test_all_who_wait_get_the_error():
    entered = threading.Event()
    go = threading.Event()
    calls = []

    def read(offset, size):
        calls.append(offset)
        entered.set()
        go.wait(30)
        raise RuntimeError("broken")

    pager = LayerPager(read, MAP)
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(pager.acquire, "second") for _ in range(4)]
        entered.wait(30)
        while pager.stats()["coalesced_waits"] < 3:
            pass
        go.set()
        for future in waiting:
            with pytest.raises(RuntimeError, match="broken"):
                future.result()
    assert calls == [100]
    with pytest.raises(RuntimeError, match="broken"):
        pager.acquire("second")
    assert calls == [100, 100]


def test_threads_share_a_pager():
    count, size = 20, 1000
    data = b"".join(bytes([i]) * size for i in range(count))
    pager = LayerPager(
        lambda offset, n: data[offset : offset + n], {str(i): (i * size, size) for i in range(count)}, 7 * size
    )

    def work(seed):
        rng = np.random.default_rng(seed)
        for slot in rng.integers(0, count, 2000):
            with pager.acquire(int(slot)) as tensor:
                if tensor.bytes() != bytes([slot]) * size:
                    return False
            if slot % 5 == 0:
                pager.prefetch([(int(slot) + 1) % count])
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))
    pager.prefetch([], wait=True)
    assert pager.resident_bytes == pager.resident_count * size <= 7 * size
    assert pager.live_bytes == pager.resident_bytes


def test_the_gil_is_free_while_reading():
    inside = threading.Event()
    go = threading.Event()

    def read(offset, size):
        inside.set()
        go.wait(30)
        return bytes(size)

    pager = LayerPager(read, MAP)
    pager.prefetch(["first"])
    assert inside.wait(30)
    assert not pager.is_resident("first")
    go.set()
    assert pager.acquire("first").nbytes == 100


def test_a_pager_that_is_dropped_while_it_reads():
    go = threading.Event()
    inside = threading.Event()

    def read(offset, size):
        inside.set()
        go.wait(30)
        return bytes(size)

    pager = LayerPager(read, MAP)
    pager.prefetch(list(MAP))
    inside.wait(30)
    threading.Timer(0.05, go.set).start()
    del pager

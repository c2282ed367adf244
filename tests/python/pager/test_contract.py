"""Pagers from Python: what they hold, how tensors are handed out, and what goes wrong."""

from __future__ import annotations

import gc
import io
import pickle

import numpy as np
import pytest

import weightstore
import weightstore.numpy
from weightstore import LayerPager, Pager

TENSORS = {
    "a": np.arange(100, dtype=np.float32).reshape(4, 25),
    "b": np.arange(50, dtype=np.int64),
    "c": np.ones((3, 3), dtype=np.float16),
    "big": np.arange(100_000, dtype=np.uint32).reshape(100, 1000),
    "none": np.zeros((0, 4), dtype=np.int8),
}


@pytest.fixture(params=["safetensors", "bpk"])
def path(tmp_path, request):
    target = tmp_path / f"model.{request.param}"
    weightstore.numpy.save_file(TENSORS, target)
    return target


def layers(count=4, size=50):
    return b"".join(bytes([i]) * size for i in range(count)), {str(i): (i * size, size) for i in range(count)}


def residents(pager):
    return [name for name in pager.names() if pager.is_resident(name)]


def test_every_kind_of_source(path):
    data = path.read_bytes()
    with (
        weightstore.open(path) as mapped,
        weightstore.open(path, backend="pread") as copied,
        open(path, "rb") as file,
    ):
        for source in (path, str(path), data, bytearray(data), io.BytesIO(data), file, mapped, copied):
            with Pager(source, "1MB") as pager:
                assert sorted(pager.names()) == sorted(TENSORS)
                for name, expected in TENSORS.items():
                    with pager.acquire(name) as tensor:
                        assert tensor.name == name
                        assert tensor.shape == expected.shape
                        assert tensor.nbytes == expected.nbytes
                        array = tensor.numpy()
                    assert array.dtype == expected.dtype
                    np.testing.assert_array_equal(array, expected)
                    assert not array.flags.writeable


def test_shards_and_checksums(tmp_path):
    index = tmp_path / "m.safetensors.index.json"
    weightstore.numpy.save_file(TENSORS, tmp_path / "m.safetensors", checksums=True)
    weightstore.convert(tmp_path / "m.safetensors", index, max_shard_size=100_000)
    with Pager(index, 1000) as pager:
        for name, expected in TENSORS.items():
            np.testing.assert_array_equal(pager.acquire(name).numpy(), expected)
    data = bytearray((tmp_path / "m.safetensors").read_bytes())
    data[-1] ^= 1
    (tmp_path / "m.safetensors").write_bytes(data)
    with Pager(tmp_path / "m.safetensors") as pager:
        damaged = pager.names()[-1] if TENSORS[pager.names()[-1]].nbytes else pager.names()[-2]
        with pytest.raises(weightstore.FormatError, match="checksum"):
            pager.acquire(damaged)
        assert pager.resident_count == 0


def test_slots_and_names(path):
    pager = Pager(path)
    assert len(pager) == len(TENSORS)
    assert "a" in pager
    assert "x" not in pager
    slot = pager.slot("a")
    assert pager.names()[slot] == "a"
    with pager.acquire(slot) as tensor, pager.acquire(np.int64(slot)) as same:
        assert tensor.slot == slot
        assert tensor.numpy().ctypes.data == same.numpy().ctypes.data
    for wrong in ("A", -1, len(TENSORS), 10**30, "\ud800"):
        with pytest.raises(weightstore.TensorNotFound) as caught:
            pager.acquire(wrong)
        assert isinstance(caught.value, weightstore.PagerError)
        assert not pager.is_resident(wrong)
        assert not pager.is_pinned(wrong)
    with pytest.raises(weightstore.TensorNotFound, match="did you mean 'big'"):
        pager.acquire("bigg")
    with pytest.raises(TypeError):
        pager.acquire(1.5)
    with pytest.raises(TypeError):
        pager.acquire()


def test_the_one_used_longest_ago_leaves():
    data, entries = layers()
    pager = LayerPager(data, entries, 100)
    for name in "010":
        pager.acquire(name)
    pager.acquire("2")
    assert residents(pager) == ["0", "2"]
    assert (pager.resident_bytes, pager.resident_count, pager.budget_bytes) == (100, 2, 100)
    stats = pager.stats()
    assert (stats["hits"], stats["misses"], stats["evictions"]) == (1, 3, 1)
    assert pager.stats("1")["evictions"] == 1
    assert stats["policy_state"] == "lru"
    pager.reset_stats()
    assert pager.stats()["hits"] == 0


def test_pins():
    data, entries = layers()
    pager = LayerPager(data, entries, 50, {"0"})
    pager.acquire("0")
    pager.acquire("1")
    assert residents(pager) == ["0", "1"]
    assert pager.over_budget_bytes == 50
    with pager.pinned(["1", 2]):
        assert pager.is_pinned("2")
        pager.acquire("3")
        assert residents(pager) == ["0", "1", "3"]
        assert not pager.evict("1")
    assert not pager.is_pinned("1")
    assert pager.is_pinned("0")
    pager.pin("3")
    assert pager.clear() == 1
    assert residents(pager) == ["0", "3"]
    pager.unpin("3")
    with pytest.raises(weightstore.InvalidArgument):
        pager.unpin("3")
    with pytest.raises(weightstore.TensorNotFound, match="'x'"):
        LayerPager(data, entries, 50, ["x", "0"])


def test_budgets(path):
    assert Pager(path).budget_bytes is None
    assert Pager(path, "4GB").budget_bytes == 4 * 10**9
    assert Pager(path, 0).budget_bytes == 0
    assert Pager(path, "auto").budget_bytes > 0
    pager = Pager(path, pinned=["a", 0])
    assert pager.is_pinned("a")
    assert pager.is_pinned(0)
    pager.acquire_many(pager.names())
    pager.set_budget(1)
    assert residents(pager) == [name for name in pager.names() if pager.is_pinned(name)]
    for wrong in ({"budget": -1}, {"budget": "much"}, {"policy": "mru"}, {"direct": "maybe"}, {"readers": 0}):
        with pytest.raises(weightstore.InvalidArgument):
            Pager(path, **wrong)
    with pytest.raises(TypeError, match="LayerPager"):
        Pager(lambda offset, size: b"")


def test_direct_reads(path):
    with Pager(path, 0, direct=True) as pager:
        assert pager.reads_directly
        for name, expected in TENSORS.items():
            np.testing.assert_array_equal(pager.acquire(name).numpy(), expected)
    assert not Pager(path, direct=False).reads_directly


def test_prefetch_and_many():
    data, entries = layers()
    pager = LayerPager(data, entries)
    pager.prefetch(["1", 2], wait=True)
    assert residents(pager) == ["1", "2"]
    tensors = pager.acquire_many(["3", 1, "0"])
    assert [tensor.bytes()[:1] for tensor in tensors] == [b"\3", b"\1", b"\0"]
    stats = pager.stats()
    assert (stats["prefetch_issued"], stats["prefetch_used"], stats["misses"]) == (2, 1, 2)


def test_strict():
    data, entries = layers()
    pager = LayerPager(data, entries, 100, strict=True)
    held = pager.acquire("0")
    view = pager.acquire("1").numpy()
    with pytest.raises(weightstore.BudgetExceeded) as caught:
        pager.acquire("2", timeout=0.01)
    assert caught.value.holders == ["0", "1"]
    assert (caught.value.needed, caught.value.budget) == (50, 100)
    assert isinstance(caught.value, MemoryError)
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is weightstore.BudgetExceeded
    assert again.holders == ["0", "1"]
    del view
    pager.acquire("2")
    held.release()
    assert pager.live_bytes == 100
    with pytest.raises(ValueError, match="timeout"):
        pager.acquire("3", timeout=-1)


def test_what_is_held_comes_back():
    data, entries = layers()
    reads = []

    def read(offset, size):
        reads.append(offset)
        return data[offset : offset + size]

    pager = LayerPager(read, entries, 50)
    array = pager.acquire("0").numpy()
    pager.acquire("1")
    assert pager.live_bytes == 100
    assert pager.acquire("0").numpy().ctypes.data == array.ctypes.data
    assert reads == [0, 50]
    assert pager.stats()["resurrected"] == 1


def test_views_outlive_everything(path):
    pager = Pager(path, 0)
    tensor = pager.acquire("big")
    array = tensor.numpy()
    buffer = memoryview(tensor.memory(False))
    pager.acquire("a")
    tensor.release()
    assert tensor.released
    assert "released" in repr(tensor)
    with pytest.raises(ValueError, match="released"):
        tensor.numpy()
    pager.close()
    del tensor, pager
    gc.collect()
    np.testing.assert_array_equal(array, TENSORS["big"])
    assert bytes(buffer) == TENSORS["big"].tobytes()
    assert buffer.readonly


def test_closed(path):
    with Pager(path) as pager:
        tensor = pager.acquire("a")
    with pytest.raises(weightstore.InvalidArgument, match="closed"):
        pager.acquire("a")
    np.testing.assert_array_equal(tensor.numpy(), TENSORS["a"])
    assert "Pager of 5 tensors" in repr(pager)


def test_numpy_and_dlpack(path):
    pager = Pager(path)
    tensor = pager.acquire("a")
    np.testing.assert_array_equal(np.asarray(tensor), TENSORS["a"])
    np.testing.assert_array_equal(np.asarray(tensor, dtype=np.float64), TENSORS["a"])
    shared = np.from_dlpack(tensor)
    assert not shared.flags.writeable
    np.testing.assert_array_equal(shared, TENSORS["a"])
    assert shared.ctypes.data == tensor.numpy().ctypes.data
    copied = np.from_dlpack(tensor, copy=True)
    assert copied.ctypes.data != shared.ctypes.data
    with pytest.raises(BufferError):
        tensor.__dlpack__(copy=False)
    with pytest.raises(BufferError):
        tensor.__dlpack__(stream=1)


@pytest.mark.parametrize("mapped", [False, True])
def test_torch(path, mapped):
    torch = pytest.importorskip("torch")
    pager = Pager(weightstore.open(path) if mapped else path)
    for name, expected in TENSORS.items():
        tensor = pager.acquire(name).torch()
        assert tuple(tensor.shape) == expected.shape
        assert torch.equal(tensor, torch.from_numpy(expected.copy()))
    copy = pager.acquire("a").torch(copy=True)
    copy.zero_()
    np.testing.assert_array_equal(pager.acquire("a").numpy(), TENSORS["a"])
    view = pager.acquire("a").torch()
    view.zero_()
    found = pager.acquire("a").numpy()
    # Over a mapped file it is copy-on-write; else it is the pager's memory, as documented.
    np.testing.assert_array_equal(found, TENSORS["a"] if mapped else np.zeros_like(TENSORS["a"]))
    np.testing.assert_array_equal(weightstore.open(path)["a"].numpy(), TENSORS["a"])


def test_types_numpy_does_not_have(write_raw):
    torch = pytest.importorskip("torch")
    data = write_raw({"half": ("BF16", [2], b"\x80\x3f\x00\x40"), "four": ("F4", [2, 4], b"abcd")})
    pager = Pager(data)
    assert pager.acquire("half").torch().tolist() == [1.0, 2.0]
    assert torch.from_dlpack(pager.acquire("half")).tolist() == [1.0, 2.0]
    assert pager.acquire("four").bytes() == b"abcd"
    assert tuple(pager.acquire("four").torch().shape) == (2, 2)
    with pytest.raises(TypeError, match="F4"):
        pager.acquire("four").numpy()


def test_files_of_torch_save(tmp_path):
    torch = pytest.importorskip("torch")
    whole = torch.arange(24.0).reshape(4, 6)
    torch.save({"plain": whole, "turned": whole.t()}, tmp_path / "m.pt")
    with Pager(tmp_path / "m.pt", 100) as pager:
        assert torch.equal(pager.acquire("plain").torch(), whole)
        assert torch.equal(pager.acquire("turned").torch(), whole.t())

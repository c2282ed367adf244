"""What keeps the memory of tensors that cross into the core together, and who frees it."""

from __future__ import annotations

import gc
import sys
import threading
import weakref

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import weightstore  # noqa: E402
import weightstore.torch as wt  # noqa: E402
from support.batch_ways import one_by_one  # noqa: E402
from weightstore import _core  # noqa: E402
from weightstore._tensors import batches  # noqa: E402

pytestmark = pytest.mark.skipif(batches.torch_exchange() is None, reason="this torch has no DLPack exchange API")


def test_a_writer_keeps_the_tensors():
    tensors = [torch.full((1000,), float(i)) for i in range(50)]
    writer = _core.Writer()
    writer.add_batch([str(i) for i in range(50)], batches.look_at(list(tensors)))
    alive = weakref.ref(tensors[0])
    del tensors
    gc.collect()
    loaded = wt.load(writer.write_bytes("safetensors"))
    assert all(loaded[str(i)][0] == i for i in range(50))
    del writer
    gc.collect()
    assert alive() is None


def mapped(path) -> bool:
    with open("/proc/self/maps") as file:
        return str(path) in file.read()


def test_loaded_tensors_keep_the_mapping_until_the_last_is_gone(tmp_path):
    path = tmp_path / "m.safetensors"
    wt.save_file({"a": torch.ones(5000), "b": torch.zeros(5000)}, path)
    loaded = wt.load_file(path)
    kept = loaded["a"].view(-1)[10:]
    del loaded
    gc.collect()
    assert mapped(path)
    assert kept.sum() == 4990
    kept += 1  # a copy-on-write view: the file stays as it is
    # The memory may be given back on any thread.
    holder = [kept]
    del kept
    thread = threading.Thread(target=holder.clear)
    thread.start()
    thread.join()
    gc.collect()
    assert not mapped(path)
    assert wt.load_file(path)["a"].sum() == 5000


def test_loaded_tensors_are_ordinary(tmp_path):
    data = wt.save({"a": torch.ones(4, 3)})
    for tensor in (wt.load(data)["a"], one_by_one(wt.load, data)["a"]):
        assert type(tensor) is torch.Tensor
        assert tensor.is_leaf
        assert tensor._base is None
        assert not tensor.requires_grad
        assert tensor.untyped_storage().nbytes() == 48
        assert tensor.data_ptr() % 64 == 0
        tensor.requires_grad_()
        (tensor * 2).sum().backward()
    with torch.inference_mode():
        assert wt.load(data)["a"].is_inference() == one_by_one(wt.load, data)["a"].is_inference()


def test_a_read_into_tensors_is_noted_by_autograd():
    data = wt.save({"a": torch.ones(3)})
    target = torch.zeros(3, requires_grad=True)
    product = (target * target).sum()
    with weightstore.open(data) as file:
        file.load_into({"a": target})
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()
    with torch.inference_mode():
        inside = torch.zeros(3)
    with weightstore.open(data) as file:
        file.load_into({"a": inside})
    assert inside.tolist() == [1, 1, 1]


# ---- tensors that change meanwhile -----------------------------------------------------------------------------------


def over_an_array(count: int, *, turned: bool = False):
    """A tensor, and the array whose memory it has: the array lives as long as the tensor's storage."""
    array = np.ones(count, np.float32)
    return torch.from_numpy(array.reshape(2, -1).T if turned else array), weakref.ref(array)


@pytest.fixture(params=["together", "one by one"])
def way(request, monkeypatch):
    monkeypatch.setattr(batches, "leaves_all_to_python", request.param == "one by one")


def replaced_meanwhile(tensors, refs):
    """A progress callback that gives the tensors other memory, and notes whether their old memory is still there."""
    seen = []

    def callback(done, total, name):
        for tensor in tensors:
            tensor.data = torch.zeros(2)
        gc.collect()
        seen.append(all(ref() is not None for ref in refs))

    return callback, seen


@pytest.mark.parametrize("turned", [False, True])
def test_a_tensor_that_gets_other_memory_is_saved_as_it_was(way, turned, tmp_path):
    tensor, ref = over_an_array(3 << 20, turned=turned)
    tensors = {"a": tensor, "b": torch.ones(5)}
    del tensor
    callback, seen = replaced_meanwhile(tensors.values(), [ref])
    path = tmp_path / "m.safetensors"
    wt.save_file(tensors, path, durable=False, progress=callback)
    assert seen
    assert all(seen)
    assert ref() is None
    loaded = wt.load_file(path)
    assert loaded["a"].numel() == 3 << 20
    assert bool((loaded["a"] == 1).all())
    assert loaded["b"].tolist() == [1] * 5


def test_a_tensor_that_gets_other_memory_can_be_read_into(way):
    data = wt.save({"a": torch.zeros(1 << 20), "b": torch.zeros(1 << 19)})
    a, of_a = over_an_array(1 << 20)
    b, of_b = over_an_array(1 << 19)
    callback, seen = replaced_meanwhile([a, b], [of_a, of_b])
    with weightstore.open(data) as file:
        file.load_into({"a": a, "b": b}, progress=callback)
    assert seen
    assert all(seen[:-1])
    assert of_a() is None
    assert of_b() is None


def test_nothing_is_kept_afterwards(way):
    tensors = {str(i): torch.ones(3, i) for i in range(4)}
    data = wt.save(tensors)
    refs = [weakref.ref(tensor) for tensor in tensors.values()]
    counts = [sys.getrefcount(tensor) for tensor in tensors.values()]
    for _ in range(3):
        wt.save(tensors)
        with weightstore.open(data) as file:
            file.load_into(tensors)
        wt.load(data)
    assert [sys.getrefcount(tensor) for tensor in tensors.values()] == counts
    del tensors
    gc.collect()
    assert [ref() for ref in refs] == [None] * 4

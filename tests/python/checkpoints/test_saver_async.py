"""Saver.save_async: a save of what was there when it was called, by a thread of its own."""

from __future__ import annotations

import re
import threading

import pytest

import weightstore
from support.torch_classes import torch


def table_of(ids):
    table = torch.classes.store.HashTable("user", [4], torch.float32, 0, 65536, 65536, 4096, [])
    table.insert(ids, ids[:, None].expand(-1, 4).to(torch.float32))
    return table


def test_save_async_takes_what_save_takes(tmp_path):
    with torch.device("meta"):
        weightstore.Saver(path=tmp_path, tensors={"w": torch.ones(2, device="cpu")}).save_async().result(60)
    assert torch.equal(weightstore.CheckpointReader(tmp_path).read_tensor("w"), torch.ones(2))
    for strange in (torch.eye(3).to_sparse(), torch.ones(2, device="meta")):
        saver = weightstore.Saver(path=tmp_path, tensors={"strange": strange})
        with pytest.raises(Exception, match="strange") as expected:
            saver.save()
        with pytest.raises(type(expected.value), match=re.escape(str(expected.value))):
            saver.save_async()


def test_save_async_captures_what_was_there(tmp_path):
    user, w = table_of(torch.arange(100)), torch.zeros(1000)
    saver = weightstore.Saver(path=tmp_path, hashtables={"user": user}, tensors={"w": w})
    for step in range(3):
        w.fill_(step)
        future = saver.save_async()
        w.fill_(-1)
        user.insert(torch.arange(100), torch.full((100, 4), -1.0))
        future.result(60)
        reader = weightstore.CheckpointReader(tmp_path)
        assert reader.read_tensor("w").eq(step).all()
        assert not reader.read_tensor("user@embedding").eq(-1).any()
        user.insert(torch.arange(100), torch.full((100, 4), float(step)))


def test_a_save_that_follows_save_async_is_the_one_that_is_refused(tmp_path):
    gate = threading.Event()
    saver = weightstore.Saver(path=tmp_path, tensors={"w": torch.ones(10)})

    class Slow:
        def __init__(self, impl):
            self._impl = impl

        def __getattr__(self, name):
            return getattr(self._impl, name)

        def save(self, blocks):
            gate.wait(60)  # the thread of save_async() has not come far
            self._impl.save(blocks)

    saver._impl = Slow(saver._impl)
    first = saver.save_async()
    for later in (weightstore.Saver(path=tmp_path, tensors={"w": torch.zeros(10)}) for _ in range(2)):
        with pytest.raises(weightstore.ConflictError, match="another save into this directory is running"):
            later.save()
        with pytest.raises(weightstore.ConflictError, match="another save into this directory is running"):
            later.save_async()
    gate.set()
    first.result(60)
    assert weightstore.CheckpointReader(tmp_path).read_tensor("w").eq(1).all()


def test_a_save_async_that_cannot_begin_lets_go_of_the_directory(tmp_path, monkeypatch):
    def no_thread(*_):
        raise RuntimeError("can't start new thread")

    saver = weightstore.Saver(path=tmp_path, tensors={"w": torch.ones(3)})
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", no_thread)
        with pytest.raises(RuntimeError, match="can't start"):
            saver.save_async()
    weightstore.Saver(path=tmp_path, tensors={"w": torch.ones(3)}).save()

"""Tensors that are made while they are written."""

from __future__ import annotations

import numpy as np
import pytest

import weightstore
import weightstore.numpy
from weightstore import DeferredTensor

DATA = np.arange(1000, dtype=np.int32).tobytes()


@pytest.mark.parametrize("ending", ["safetensors", "bpk", "safetensors.index.json"])
@pytest.mark.parametrize(
    "produce",
    [
        lambda: DATA,
        lambda: bytearray(DATA),
        lambda: np.frombuffer(DATA, np.int32),
        lambda: (DATA[i : i + 7] for i in range(0, len(DATA), 7)),
        lambda: [b"", DATA[:1], b"", DATA[1:], b""],
    ],
    ids=["bytes", "bytearray", "array", "generator", "with empty chunks"],
)
def test_what_may_be_produced(tmp_path, ending, produce):
    path = tmp_path / f"m.{ending}"
    tensors = {"a": DeferredTensor("I32", (10, 100), produce), "b": np.ones(3)}
    weightstore.numpy.save_file(tensors, path)
    weightstore.numpy.save_file(tensors, path)  # made anew for each file
    with weightstore.open(path) as file:
        assert file["a"].bytes() == DATA
        assert file["a"].shape == (10, 100)
        assert file["b"].bytes() == np.ones(3).tobytes()


def test_in_memory():
    data = weightstore.numpy.save({"t": DeferredTensor(np.int32, [1000], lambda: DATA)})
    assert data == weightstore.numpy.save({"t": np.arange(1000, dtype=np.int32)})


def test_nothing_is_produced_before_its_turn(tmp_path):
    events = []

    def make(name):
        events.append(name)
        yield b"\0" * 8
        events.append(f"{name} done")

    tensors = {name: DeferredTensor("I64", (1,), lambda name=name: make(name)) for name in "cab"}
    weightstore.numpy.save_file(tensors, tmp_path / "m.safetensors")
    assert events == ["a", "a done", "b", "b done", "c", "c done"]


def test_a_plan_that_fails_produces_nothing(tmp_path):
    def never():
        raise AssertionError("called")

    with pytest.raises(ValueError, match="complex128"):
        weightstore.numpy.save_file(
            {"a": DeferredTensor("F32", (3,), never), "b": np.zeros(3, np.complex128)}, tmp_path / "m.safetensors"
        )


@pytest.mark.parametrize("produce", [lambda: DATA[:-1], lambda: DATA + b"x", lambda: [DATA, b"x"], list])
def test_a_wrong_length(tmp_path, produce):
    path = tmp_path / "m.safetensors"
    path.write_bytes(b"old")
    with pytest.raises(ValueError, match="bytes where its type and shape need 4000") as caught:
        weightstore.numpy.save_file({"t": DeferredTensor("I32", (1000,), produce)}, path)
    assert isinstance(caught.value, weightstore.StoreError)
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_what_it_raises_is_raised_again(tmp_path):
    class OutOfInk(Exception):
        pass

    def produce():
        yield DATA[:100]
        raise OutOfInk("blue")

    with pytest.raises(OutOfInk, match="blue"):
        weightstore.numpy.save_file({"t": DeferredTensor("I32", (1000,), produce)}, tmp_path / "m.safetensors")
    assert not list(tmp_path.iterdir())


def test_what_is_no_bytes(tmp_path):
    for produce in (lambda: 3, lambda: ["text"]):
        with pytest.raises(TypeError):
            weightstore.numpy.save({"t": DeferredTensor("I32", (1000,), produce)})


def test_arguments():
    with pytest.raises(TypeError, match="F33"):
        DeferredTensor("F33", (1,), bytes)
    with pytest.raises(TypeError, match="QFloat"):
        DeferredTensor("QFloat", (1,), bytes)
    with pytest.raises(TypeError, match="callable"):
        DeferredTensor("F32", (1,), b"1234")
    with pytest.raises(ValueError, match="negative"):
        DeferredTensor("F32", (-1,), bytes)
    assert DeferredTensor(np.dtype("float32"), (1,), bytes).dtype == "F32"
    with pytest.raises(ValueError, match="whole bytes"):
        weightstore.numpy.save({"t": DeferredTensor("F4", (3,), bytes)})

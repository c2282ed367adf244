"""Bytes that are made as they are written: chains of casts and transposes, from memory, callables and files."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import weightstore
import weightstore.numpy
from weightstore import StoreError, errors
from weightstore._core import Producer, Reader, Writer

ROWS, COLUMNS = 700, 1100
MATRIX = np.random.default_rng(3).standard_normal((ROWS, COLUMNS)).astype(np.float32)


def memory(array: np.ndarray) -> Producer:
    return Producer.memory(array.ctypes.data, array.nbytes, array)


def test_a_chain_is_read_at_once() -> None:
    chain = memory(MATRIX).transpose("F32", ROWS, COLUMNS).cast("F32", "F16")
    assert chain.nbytes == MATRIX.nbytes // 2
    expected = MATRIX.T.astype(np.float16)
    for _ in range(2):  # as often as wanted
        np.testing.assert_array_equal(np.frombuffer(chain.read(), np.float16).reshape(COLUMNS, ROWS), expected)
    other = memory(MATRIX).cast("F32", "F16").transpose("F16", ROWS, COLUMNS)
    assert bytes(other.read()) == expected.tobytes()


@pytest.mark.parametrize("format", ["safetensors", "burnpack"])
def test_chains_are_written_block_by_block(tmp_path, format) -> None:
    calls = []

    def produce():
        calls.append(1)
        return (row.tobytes() for row in MATRIX)

    path = tmp_path / f"m.{'bpk' if format == 'burnpack' else format}"
    writer = Writer()
    writer.add("wide", "F64", [ROWS, COLUMNS], Producer.buffer(MATRIX).cast("F32", "F64"))
    writer.add("turned", "F32", [COLUMNS, ROWS], memory(MATRIX).transpose("F32", ROWS, COLUMNS))
    writer.add("lazy", "F16", [COLUMNS, ROWS], Producer.deferred(MATRIX.nbytes, produce)
               .transpose("F32", ROWS, COLUMNS).cast("F32", "F16"))  # fmt: skip
    assert not calls
    writer.write_file(path, format)
    assert calls == [1]
    with weightstore.open(path) as file:
        np.testing.assert_array_equal(file["wide"].numpy(), MATRIX.astype(np.float64))
        np.testing.assert_array_equal(file["turned"].numpy(), MATRIX.T)
        np.testing.assert_array_equal(file["lazy"].numpy(), MATRIX.T.astype(np.float16))


def test_a_file_is_cast_on_its_way_to_another(tmp_path) -> None:
    weightstore.numpy.save_file({"t": MATRIX}, tmp_path / "a.safetensors")
    for backend in ("mmap", "pread"):
        reader = Reader.open(tmp_path / "a.safetensors", backend=backend)
        writer = Writer()
        writer.add("t", "F16", [ROWS, COLUMNS], Producer.tensor(reader, 0).cast("F32", "F16"))
        del reader
        writer.write_file(tmp_path / "b.safetensors", "safetensors")
        with weightstore.open(tmp_path / "b.safetensors") as file:
            np.testing.assert_array_equal(file["t"].numpy(), MATRIX.astype(np.float16))


def test_a_producer_keeps_its_memory_alive() -> None:
    array = MATRIX.copy()
    watch = weakref.ref(array)
    chain = memory(array).transpose("F32", ROWS, COLUMNS)
    del array
    gc.collect()
    assert watch() is not None
    assert bytes(chain.read()) == MATRIX.T.tobytes()
    del chain
    gc.collect()
    assert watch() is None


def test_a_write_does_not_change_what_the_collector_sees(tmp_path) -> None:
    """The collector looks more than once, and would take for garbage what it sees only the first time."""
    seen = []

    def produce():
        seen.append(produce in gc.get_referents(writer))
        return bytes(4)

    writer = Writer()
    writer.add_deferred("a", "F32", [1], produce)
    assert produce in gc.get_referents(writer)
    writer.write_shards(tmp_path / "m.safetensors.index.json", 4)  # copies the producers
    assert seen == [True]
    # What is also a Python object is never shown, whether that object is still there or not.
    shared = Producer.deferred(4, produce)
    other = Writer()
    other.add("b", "F32", [1], shared)
    assert produce not in gc.get_referents(other)
    del shared
    assert produce not in gc.get_referents(other)


def test_errors_of_a_callable_arrive() -> None:
    def produce():
        raise LookupError("gone")

    with pytest.raises(LookupError, match="gone"):
        Producer.deferred(16, produce).cast("F32", "F16").read()
    with pytest.raises(StoreError, match="produced 12 bytes"):
        Producer.deferred(16, lambda: bytes(12)).transpose("F32", 2, 2).read()


def test_refusals() -> None:
    with pytest.raises(StoreError, match="cannot convert I32 to F16"):
        memory(MATRIX).cast("I32", "F16")
    with pytest.raises(StoreError, match="are not 3080000 bytes"):
        memory(MATRIX).transpose("F32", ROWS, ROWS)
    with pytest.raises(StoreError, match="F4 are not whole bytes"):
        memory(MATRIX).transpose("F4", ROWS, ROWS)
    with pytest.raises(TypeError):
        Writer().add("t", "F32", [1], None)  # type: ignore[arg-type]
    writer = Writer()
    writer.add("t", "F32", [1], memory(MATRIX))
    with pytest.raises(StoreError, match="t"):
        writer.write_bytes("safetensors")


def test_a_chain_is_read_into_memory_that_is_there() -> None:
    chain = memory(MATRIX).transpose("F32", ROWS, COLUMNS).cast("F32", "F64")
    target = np.zeros((COLUMNS, ROWS))
    chain.read_into(target.ctypes.data, target.nbytes)
    np.testing.assert_array_equal(target, MATRIX.T)
    with pytest.raises(StoreError, match=f"room for 8 bytes, but there are {target.nbytes}"):
        chain.read_into(target.ctypes.data, 8)
    Producer.buffer(b"").read_into(0, 0)


def test_contents_stay_as_they_are_while_they_are_written(tmp_path) -> None:
    """A write calls back into Python, where the writer can be reached."""
    writer = Writer()
    for i in range(4):
        writer.add(f"t{i}", "U8", [5 << 20], Producer.buffer(np.full(5 << 20, i, np.uint8)))
    refusals = []

    def change(*_):
        for call in (
            lambda: writer.add("x", "U8", [1], Producer.buffer(b"a")),
            lambda: writer.add_deferred("x", "U8", [1], lambda: b"a"),
            lambda: writer.set_metadata({"k": "v"}),
            lambda: writer.set_scalar("s", 1),
            lambda: writer.write_bytes("safetensors"),
        ):
            with pytest.raises(errors.InvalidArgument, match="is being written") as caught:
                call()
            refusals.append(caught.value)
        assert len(writer) == 4

    path = tmp_path / "m.safetensors"
    writer.write_file(path, "safetensors", progress=change, durable=False)
    assert refusals
    assert sorted(weightstore.open(path)) == ["t0", "t1", "t2", "t3"]
    with pytest.raises(errors.OperationCancelled):
        writer.write_file(path, "safetensors", progress=lambda *_: False, durable=False)
    writer.add("x", "U8", [1], Producer.buffer(b"a"))
    assert len(writer) == 5

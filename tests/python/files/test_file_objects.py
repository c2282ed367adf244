"""Binary file objects as sources: read through their descriptor where that is the same, and never wrongly in a fork."""

from __future__ import annotations

import gzip
import io
import os
import tempfile

import numpy as np
import pytest

import weightstore
import weightstore.numpy

ARRAYS = {str(i): np.full(30_000, i, np.uint8) for i in range(8)}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("objects") / "m.safetensors"
    weightstore.numpy.save_file(ARRAYS, path, durable=False)
    return path


def temporary(path):
    file = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    file.write(path.read_bytes())  # some of it is still in the buffer
    return file


def compressed(path):
    return gzip.GzipFile(fileobj=io.BytesIO(gzip.compress(path.read_bytes())))


def compressed_on_disk(path):
    """Its fileno() is that of the compressed file."""
    packed = path.with_suffix(".gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    return gzip.open(packed, "rb")


KINDS = {
    "buffered": lambda path: io.BufferedReader(io.FileIO(path)),
    "unbuffered": io.FileIO,
    "writable": lambda path: io.BufferedRandom(io.FileIO(path, "r+")),
    "temporary": temporary,
    "in memory": lambda path: io.BytesIO(path.read_bytes()),
    "compressed": compressed,
    "compressed on disk": compressed_on_disk,
}
ON_DISK = ["buffered", "unbuffered", "writable", "temporary"]


def check(pager):
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(pager.acquire(name).numpy(), array)


@pytest.mark.parametrize("kind", KINDS)
def test_all_kinds_have_the_same_bytes(path, kind):
    with KINDS[kind](path) as file:
        file.seek(17)
        loaded = weightstore.open(file).load()
        assert loaded.keys() == ARRAYS.keys()
        for name, array in ARRAYS.items():
            np.testing.assert_array_equal(loaded[name], array)
        check(weightstore.Pager(file, 1))


@pytest.mark.parametrize("kind", ON_DISK)
def test_a_file_stays_readable_when_the_object_is_closed(path, kind):
    with KINDS[kind](path) as file:
        pager = weightstore.Pager(file, 1)
    check(pager)


@pytest.mark.parametrize("kind", ON_DISK)
def test_the_descriptor_goes_with_the_reader(path, kind):
    before = len(os.listdir("/proc/self/fd"))
    with KINDS[kind](path) as file:
        weightstore.open(file).close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_file_that_cannot_be_read(path, tmp_path):
    copy = tmp_path / "m.safetensors"
    copy.write_bytes(path.read_bytes())
    with open(copy, "ab") as file, pytest.raises(OSError, match="read"):
        weightstore.open(file)
    file = open(copy, "rb")  # noqa: SIM115
    file.close()
    with pytest.raises(ValueError, match="closed"):
        weightstore.open(file)


@pytest.mark.parametrize("kind", KINDS)
def test_parent_and_child_read_at_the_same_time(path, kind):
    with KINDS[kind](path) as file:
        pager = weightstore.Pager(file, 1)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                for _ in range(20):
                    check(pager)
                code = 0
            except weightstore.InvalidArgument as error:
                code = 2 if "forked process" in str(error) else 1
            finally:
                os._exit(code)
        for _ in range(20):
            check(pager)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code == (2 if "compressed" in kind else 0)


class Keeper(io.RawIOBase):
    """Keeps what it is given to read into, in the way that `keep` says."""

    def __init__(self, path, keep):
        self.file = io.BytesIO(path.read_bytes())
        self.keep = keep
        self.kept = []

    def seek(self, *arguments):
        return self.file.seek(*arguments)

    def tell(self):
        return self.file.tell()

    def readinto(self, view):
        self.kept.append(self.keep(view))
        return self.file.readinto(view)


def fail(view):
    raise OSError("boom") from ValueError(view)


@pytest.mark.parametrize("keep", [lambda view: view, lambda view: view[:], np.frombuffer, lambda view: view.obj])
def test_an_object_that_keeps_its_buffer_has_memory_of_its_own(path, keep):
    keeper = Keeper(path, keep)
    loaded = weightstore.open(keeper).load()
    for kept in keeper.kept:
        bytes(kept)
        if isinstance(kept, memoryview):
            kept[:] = bytes(len(kept))
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(loaded[name], array)


def test_an_object_that_keeps_its_buffer_and_fails(path):
    keeper = Keeper(path, lambda view: view)
    with weightstore.open(keeper) as file:
        keeper.keep = fail
        with pytest.raises(OSError, match="boom") as caught:
            file["0"].numpy()
    view = caught.value.__cause__.args[0]
    view[:] = bytes(len(view))


def test_an_object_cannot_take_its_buffer_away(path):
    def shrink(view):
        memory = view.obj
        view.release()
        with pytest.raises(BufferError):
            memory.clear()
        return 30_000

    keeper = Keeper(path, lambda view: view)
    with weightstore.open(keeper) as file:
        keeper.readinto = shrink
        assert file["0"].numpy().shape == ARRAYS["0"].shape
        keeper.readinto = lambda view: len(view) + 1
        with pytest.raises(OSError, match="shrunk"):
            file["0"].numpy()


@pytest.mark.parametrize("name", ["Reader", "ObjectReader", "Memory", "Producer"])
def test_objects_of_the_core_come_from_functions_alone(name):
    kind = getattr(weightstore._core, name)
    for make in (kind, lambda: kind.__new__(kind), lambda: object.__new__(kind)):
        with pytest.raises(TypeError):
            make()

"""What is often found in place of weights: each is refused by name, at once, and nothing is allocated for it."""

from __future__ import annotations

import errno
import io
import os
import pickle
import socket
import struct
import zipfile
from pathlib import Path

import pytest

import weightstore
from weightstore.errors import FormatError, StoreError, StoreIOError

BACKENDS = pytest.mark.parametrize("backend", ["mmap", "pread"])

# In a process of its own: a reader that waits for a writer would wait for ever. Arguments: path, backend.
OPEN = """
import sys
import weightstore
from weightstore.errors import StoreIOError
try:
    weightstore.open(sys.argv[1], backend=sys.argv[2])
except StoreIOError as error:
    print(error)
"""


@BACKENDS
def test_a_fifo_does_not_wait(run_child, tmp_path, backend):
    path = tmp_path / "model.safetensors"
    os.mkfifo(path)
    printed = run_child(OPEN, path, backend)
    assert "FIFO" in printed
    assert str(path) in printed


@BACKENDS
@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null", "/dev/full"])
def test_a_device_is_refused(run_child, backend, device):
    assert "device" in run_child(OPEN, device, backend)


@BACKENDS
def test_a_directory_without_a_model_is_refused(tmp_path, backend):
    with pytest.raises(FileNotFoundError, match="holds no checkpoint and no model") as caught:
        weightstore.open(tmp_path, backend=backend)
    assert isinstance(caught.value, StoreIOError)
    assert caught.value.errno == errno.ENOENT
    assert caught.value.filename == str(tmp_path)


@BACKENDS
def test_a_socket_is_refused(tmp_path, monkeypatch, backend):
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        with pytest.raises(StoreIOError):
            weightstore.open("socket", backend=backend)


@BACKENDS
def test_a_missing_file_is_not_found(tmp_path, backend):
    with pytest.raises(FileNotFoundError) as caught:
        weightstore.open(tmp_path / "missing.safetensors", backend=backend)
    assert isinstance(caught.value, StoreIOError)
    assert caught.value.filename == str(tmp_path / "missing.safetensors")


@pytest.mark.parametrize("path", ["", "a\0b"])
def test_a_path_that_can_be_none_is_an_error(path):
    with pytest.raises((StoreError, ValueError)):
        weightstore.open(path)


def zip_bytes() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("weights.txt", b"1 2 3")
    return stream.getvalue()


STRANGERS = {
    "lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 12345\n", "LFS"),
    "html": (b"<!DOCTYPE html>\n<html><head><title>Sign in</title></head></html>\n", "HTML"),
    "html after space": (b"\n\n  <html><body>404</body></html>", "HTML"),
    "pickle 2": (pickle.dumps([{"a": 1}, 2, 3], protocol=2), "pickle|torch.save"),
    "pickle 4": (pickle.dumps([{"a": 1}, 2, 3], protocol=4), "pickle|torch.save"),
    "pickle 5": (pickle.dumps(list(range(1000)), protocol=5), "pickle|torch.save"),
    "zip": (zip_bytes(), "ZIP|zip"),
    "empty zip": (b"PK\5\6" + bytes(18), "ZIP|zip"),
    "empty": (b"", "empty"),
    "gzip": (b"\x1f\x8b\x08\x00" + bytes(60), None),
    "gguf": (b"GGUF\x03\x00\x00\x00" + b"\xff" * 60, None),
    "hdf5": (b"\x89HDF\r\n\x1a\n" + bytes(60), None),
    "npy": (b"\x93NUMPY\x01\x00v\x00{'descr': '<f4'}" + bytes(60), None),
    "text": (b"hello, world\n" * 20, None),
    "json": (b'{"metadata": {}, "weights": []}', None),
    "zeros": (bytes(4096), None),
    "ones": (b"\xff" * 4096, None),
    "magic only": (b"NRUB", None),
    "magic and zeros": (b"NRUB" + bytes(300), None),
    "future burnpack": (
        b"NRUB\x02\x00\x0a\x00\x00\x00\xa1\x67tensors\xa0".ljust(256, b"\0"),
        r"version|named as a SafeTensors file",
    ),
}


@pytest.mark.parametrize("way", ["mmap", "pread", "bytes"])
@pytest.mark.parametrize("kind", STRANGERS)
@pytest.mark.parametrize("name", ["model.safetensors", "model.bpk"])
def test_a_file_of_another_kind_is_refused_by_name(tmp_path, kind, way, name):
    data, text = STRANGERS[kind]
    path = tmp_path / name
    path.write_bytes(data)
    source, options = (data, {}) if way == "bytes" else (path, {"backend": way})
    with pytest.raises(FormatError, match=text) as caught:
        weightstore.open(source, **options)
    if way != "bytes":
        assert str(path) in str(caught.value)


def test_a_safetensors_file_may_begin_like_a_zip(tmp_path):
    """The letters PK are a header length below the limit, so they decide nothing."""
    length = int.from_bytes(b"PK\3\4", "little")
    path = tmp_path / "model.safetensors"
    with path.open("wb") as stream:
        stream.write(struct.pack("<Q", length))
        stream.write(b'{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}'.ljust(length))
        stream.write(b"ok")
    with weightstore.open(path) as file:
        assert file["a"].bytes() == b"ok"


def sparse(path, size: int) -> int:
    """A file without blocks, as large as the file system has them."""
    while True:
        try:
            os.truncate(path, size)
            return size
        except OSError:
            size //= 2


# The header is all that is on disk. Arguments: path, backend.
HUGE = """
import resource, sys
import weightstore
from weightstore.errors import StoreError

path, backend = sys.argv[1:]
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    with weightstore.open(path, backend=backend) as file:
        print(sum(handle.nbytes for handle in file.values()), file["t"][-5:].bytes())
except StoreError as error:
    print("refused", error)
assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10
"""


def folder_for_huge_files(tmp_path):
    """tmpfs has files of 8 EiB, disks have smaller ones."""
    return Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else tmp_path


@BACKENDS
def test_a_huge_file_costs_nothing(run_child, tmp_path, backend):
    path = folder_for_huge_files(tmp_path) / f"weightstore-huge-{os.getpid()}.safetensors"
    try:
        for content, verdict in ((b"", "refused"), (b"NRUB\1\0" + b"\xff" * 4, "refused"), (b"\x80", "refused")):
            path.write_bytes(content)
            sparse(path, 2**63 - 1)
            assert run_child(HUGE, path, backend).startswith(verdict)
        size = sparse(path, 2**63 - 1)
        count = size - 8 - 128
        header = f'{{"t":{{"dtype":"U8","shape":[{count}],"data_offsets":[0,{count}]}}}}'.encode().ljust(128)
        with path.open("r+b") as stream:
            stream.write(struct.pack("<Q", 128) + header)
        printed = run_child(HUGE, path, backend)
        # As many elements as have 2^64 bits are too many for the format; fewer are read without a thought.
        assert printed.startswith("refused") if count >= 2**61 else printed == f"{count} {bytes(5)}\n"
    finally:
        path.unlink(missing_ok=True)

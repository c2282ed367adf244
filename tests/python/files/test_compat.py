"""weightstore.compat: the argument forms and texts of the safetensors module."""

from __future__ import annotations

import importlib
import pickle
import struct

import numpy as np
import pytest

from weightstore import compat
from weightstore.compat import SafetensorError, TensorSpec, deserialize, safe_open, serialize, serialize_file

ARRAY = np.arange(6, dtype=np.float32).reshape(2, 3)


def spec(array: np.ndarray = ARRAY, **changes) -> TensorSpec:
    given = {"dtype": array.dtype.name, "shape": array.shape, "data_ptr": array.ctypes.data, "data_len": array.nbytes}
    return TensorSpec(**(given | changes))


def file_of(header: bytes, data: bytes = b"") -> bytes:
    return struct.pack("<Q", len(header)) + header + data


def test_round_trip(tmp_path):
    data = serialize({"t": spec()}, {"k": "v"})
    serialize_file({"t": spec()}, tmp_path / "m.safetensors", metadata={"k": "v"})
    assert (tmp_path / "m.safetensors").read_bytes() == data
    assert deserialize(data) == [("t", {"shape": [2, 3], "dtype": "F32", "data": bytearray(ARRAY.tobytes())})]
    assert type(deserialize(data)[0][1]["data"]) is bytearray


def test_the_spec():
    made = spec()
    assert (made.dtype, made.shape, made.data_len, made.data_ptr) == ("F32", [2, 3], 24, ARRAY.ctypes.data)
    packed = TensorSpec(dtype="float4_e2m1fn_x2", shape=(2, 2), data_ptr=0, data_len=4)
    assert (packed.dtype, packed.shape) == ("F4", [2, 4])
    with pytest.raises(SafetensorError, match='^Unknown dtype "nonsense"'):
        spec(dtype="nonsense")
    with pytest.raises(TypeError):
        TensorSpec("float32", [1], 0, 4)
    with pytest.raises(TypeError, match="TensorSpec"):
        serialize({"t": {"dtype": "float32", "shape": [1], "data_ptr": 0, "data_len": 4}})


def test_serializing_errors(tmp_path):
    with pytest.raises(SafetensorError) as caught:
        serialize({"t": spec(data_len=23)})
    assert str(caught.value) == (
        "Error while serializing: tensor of type F32 and shape (2, 3) can't be created from 23 bytes"
    )
    with pytest.raises(OSError, match="nowhere"):
        serialize_file({"t": spec()}, tmp_path / "nowhere" / "m.safetensors")


TEXTS = [
    (b"", "header too small"),
    (b"\1\0\0", "header too small"),
    (struct.pack("<Q", 10**8 + 1) + b"{}", "header too large"),
    (struct.pack("<Q", 100) + b"{}", "invalid header length"),
    (file_of(b'{"\xff":1}'), "invalid UTF-8 in header"),
    (file_of(b'{"t":'), "invalid JSON in header"),
    (file_of(b'{"t":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}', bytes(12)), "invalid offset for tensor `t`"),
    (
        file_of(b'{"t":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}', bytes(4)),
        "invalid shape, data type, or offset for tensor",
    ),
    (
        file_of(b'{"t":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}}', bytes(4)),
        "overflow computing buffer size from shape and/or element type",
    ),
    (
        file_of(b'{"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', bytes(5)),
        "incomplete metadata, file not fully covered",
    ),
    (
        file_of(b'{"t":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}}', bytes(2)),
        "The slice is slicing for subbytes dtypes",
    ),
]


@pytest.mark.parametrize(("data", "text"), TEXTS, ids=[text for _, text in TEXTS])
def test_texts_of_refusals(tmp_path, data, text):
    path = tmp_path / "m.safetensors"
    path.write_bytes(data)
    with pytest.raises(SafetensorError) as caught:
        deserialize(data)
    assert str(caught.value).startswith(f"Error while deserializing: {text}")
    with pytest.raises(SafetensorError) as caught:
        safe_open(path, "np")
    assert str(caught.value).startswith(f"Error while deserializing header: {text}")


@pytest.mark.parametrize(("data", "text"), TEXTS, ids=[text for _, text in TEXTS])
def test_texts_are_the_references(tmp_path, data, text):
    reference = pytest.importorskip("safetensors")
    with pytest.raises(reference.SafetensorError) as caught:
        reference.deserialize(data)
    assert str(caught.value).startswith(f"Error while deserializing: {text}")


def test_open_errors(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError) as caught:
        safe_open("notafile", "np")
    assert str(caught.value) == "No such file or directory: notafile"
    serialize_file({"t": spec()}, "m.safetensors")
    with pytest.raises(SafetensorError, match="backend"):
        safe_open("m.safetensors", "np", backend="floppy")
    with safe_open("m.safetensors", "np") as file:
        with pytest.raises(SafetensorError, match="^File does not contain tensor x$"):
            file.get_tensor("x")
        with pytest.raises(SafetensorError, match="^File does not contain tensor x$"):
            file.get_slice("x")
    with pytest.raises(SafetensorError, match="^File is closed$"):
        file.get_tensor("t")


def test_slices_that_reach_beyond(tmp_path):
    path = tmp_path / "m.safetensors"
    serialize_file({"t": spec()}, path)
    with safe_open(path, "np") as file:
        part = file.get_slice("t")
        np.testing.assert_array_equal(part[..., -1], ARRAY[..., -1])
        with pytest.raises(SafetensorError) as caught:
            part[1:, :4]
        assert str(caught.value) == (
            "Error during slicing [1:, :4] with shape [2, 3]: index 3 out of bounds for tensor dimension #1 of size 3"
        )
        with pytest.raises(SafetensorError, match="^Non empty lists are not implemented$"):
            part[[0]]


def test_handles(tmp_path):
    path = tmp_path / "m.safetensors"
    serialize_file({"t": spec()}, path)
    with path.open("rb") as stream, compat._safe_open_handle(stream, framework="np", device="cpu") as file:
        np.testing.assert_array_equal(file.get_tensor("t"), ARRAY)


def test_the_error_class():
    importlib.import_module(SafetensorError.__module__)
    assert str(pickle.loads(pickle.dumps(SafetensorError("text")))) == "text"

"""weightstore.numpy: the verbs, and arrays of every layout."""

from __future__ import annotations

import json

import numpy as np
import pytest

import weightstore
import weightstore.numpy as wn
from weightstore import errors

pytestmark = pytest.mark.usefixtures("both_ways")

FORMATS = ["safetensors", "bpk"]
RNG = np.random.default_rng(1)
BASE = RNG.standard_normal((6, 8, 10)).astype(np.float32)

LAYOUTS = {
    "contiguous": BASE,
    "fortran": np.asfortranarray(BASE),
    "transposed": BASE.transpose(2, 0, 1),
    "strided": BASE[::2, 1::3, ::-1],
    "negative": BASE[::-1, ::-1, ::-1],
    "broadcast": np.broadcast_to(BASE[:, :1], (4, 6, 8, 10)),
    "big-endian": BASE.astype(">f4"),
    "big-endian, strided": BASE.astype(">f4")[::2, ::-1].T,
    "big-endian complex": (BASE + 1j * BASE[::-1]).astype(">c8").T,
    "big-endian int64": np.arange(10, dtype=">i8"),
    "0-d": np.array(3.0),
    "0-d big-endian": np.array(3.0, dtype=">f8"),
    "numpy scalar": np.float16(1.5),
    "empty": np.zeros((3, 0, 2)),
    "empty, strided": np.zeros((3, 0, 2)).T[::2],
    "one element, odd strides": BASE[3:4, 2:3, 1:2].T,
    "read-only": np.frombuffer(b"abcdefgh", np.uint16),
    "field of records": np.array([(1, 2.0), (3, 4.0)], dtype=[("i", "i2"), ("f", "f8")])["f"],
}


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_are_saved_by_value(tmp_path, layout, format):
    if layout == "big-endian complex" and format == "bpk":
        pytest.skip("Burnpack has no complex numbers")
    path = tmp_path / f"m.{format}"
    array = LAYOUTS[layout]
    wn.save_file({"t": array}, path)
    for backend in ("mmap", "pread"):
        loaded = wn.load_file(path, backend=backend)["t"]
        np.testing.assert_array_equal(loaded, array)
        assert loaded.dtype == np.asarray(array).dtype.newbyteorder("=")
        assert loaded.flags.writeable == (backend == "pread")


NATIVE = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
NATIVE += ["float16", "float32", "float64", "complex64"]
EXTRA = ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float8_e4m3fnuz", "float8_e5m2fnuz"]


@pytest.mark.parametrize("name", NATIVE + EXTRA)
def test_types(tmp_path, name):
    dtype = np.dtype(name) if name in NATIVE else np.dtype(getattr(pytest.importorskip("ml_dtypes"), name))
    array = np.array([0, 1, 2, 4], dtype=np.float32).astype(dtype)
    wn.save_file({"t": array, "strided": array[::-1]}, tmp_path / "m.safetensors")
    for loaded in (
        wn.load_file(tmp_path / "m.safetensors"),
        wn.load_file(tmp_path / "m.safetensors", backend="mmap"),
        wn.load(wn.save({"t": array, "strided": array[::-1]})),
    ):
        assert loaded["t"].dtype == dtype
        assert loaded["t"].tobytes() == array.tobytes()
        assert loaded["strided"].tobytes() == array[::-1].tobytes()


@pytest.mark.parametrize("name", ["complex128", "longdouble", "S4", "U4", "O", "datetime64[s]"])
def test_types_no_file_can_hold(tmp_path, name):
    with pytest.raises(ValueError, match="'t'") as caught:
        wn.save_file({"t": np.zeros(2, dtype=name)}, tmp_path / "m.safetensors")
    assert caught.value.tensor == "t"
    assert not list(tmp_path.iterdir())


def test_what_is_no_array(tmp_path):
    with pytest.raises(ValueError, match="Key `t` is invalid"):
        wn.save_file({"t": [1, 2]}, tmp_path / "m.safetensors")
    with pytest.raises(TypeError, match="names"):
        wn.save_file({3: np.zeros(1)}, tmp_path / "m.safetensors")


def test_metadata(tmp_path):
    path = tmp_path / "m.safetensors"
    wn.save_file({}, path, metadata={"b": "2", "a": "é"})
    assert path.read_bytes()[8:].startswith('{"__metadata__":{"a":"é","b":"2"}}'.encode())
    wn.save_file({}, path)
    assert b"__metadata__" not in path.read_bytes()
    for wrong in ({"a": 1}, {1: "a"}, {"a": None}):
        with pytest.raises(TypeError, match="str"):
            wn.save_file({}, path, wrong)


def test_the_bytes_of_the_reference(tmp_path):
    reference = pytest.importorskip("safetensors.numpy")
    tensors = {"b": BASE, "a": np.arange(3, dtype=np.int8), "é": np.zeros((0, 2), np.float16)}
    assert wn.save(tensors, {"k": "v"}) == reference.save(tensors, {"k": "v"})
    wn.save_file(tensors, tmp_path / "m.safetensors")
    assert (tmp_path / "m.safetensors").read_bytes() == reference.save(tensors)


def test_overwrite(tmp_path):
    path = tmp_path / "m.safetensors"
    wn.save_file({"a": np.zeros(1)}, path, durable=False)
    with pytest.raises(errors.ConflictError):
        wn.save_file({"b": np.zeros(1)}, path, overwrite=False)
    assert weightstore.open(path).keys() == ["a"]
    wn.save_file({"b": np.zeros(1)}, path)
    assert weightstore.open(path).keys() == ["b"]


def test_any_other_ending_is_safetensors(tmp_path):
    wn.save_file({"a": np.zeros(1)}, tmp_path / "weights.bin")
    assert weightstore.open(tmp_path / "weights.bin").format == "safetensors"


def test_burnpack_only(tmp_path):
    for extra in ({"param_ids": {"a": 1}}, {"scalars": {"step": 1}}):
        with pytest.raises(ValueError, match="SafeTensors cannot hold"):
            wn.save_file({"a": np.zeros(1)}, tmp_path / "m.safetensors", **extra)
    with pytest.raises(ValueError, match="not saved: b"):
        wn.save_file({"a": np.zeros(1)}, tmp_path / "m.bpk", param_ids={"b": 1})
    with pytest.raises(ValueError, match="64 bits"):
        wn.save_file({}, tmp_path / "m.bpk", scalars={"big": 2**64})
    with pytest.raises(TypeError, match="scalar"):
        wn.save_file({}, tmp_path / "m.bpk", scalars={"text": "x"})


def test_shards(tmp_path):
    tensors = {f"t{i}": np.full(25, i, np.float32) for i in range(10)}
    wn.save_file(tensors, tmp_path / "model.safetensors", {"k": "v"}, max_shard_size="0.25kB")
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == 1000
    assert index["weight_map"]["t3"] == "model-00002-of-00005.safetensors"
    assert not (tmp_path / "model.safetensors").exists()
    with weightstore.open(tmp_path / "model.safetensors.index.json") as file:
        assert file.format == "safetensors"
        assert file["t3"].shard.endswith("model-00002-of-00005.safetensors")
        for name, array in file.load().items():
            np.testing.assert_array_equal(array, tensors[name])


def test_a_small_model_is_not_sharded(tmp_path):
    wn.save_file({"a": np.zeros(5)}, tmp_path / "model.safetensors", max_shard_size="1MB")
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.safetensors"]


@pytest.mark.parametrize("size", ["five", "5 XB", 0, "0GB", -1])
def test_sizes_are_checked(tmp_path, size):
    with pytest.raises(ValueError, match="size"):
        wn.save_file({}, tmp_path / "m.safetensors", max_shard_size=size)


def test_save_over_a_file_that_is_mapped(tmp_path):
    path = tmp_path / "m.safetensors"
    wn.save_file({"a": np.arange(10000)}, path)
    before = wn.load_file(path, backend="mmap")["a"]
    wn.save_file({"a": np.zeros(10000)}, path)
    np.testing.assert_array_equal(before, np.arange(10000))
    wn.save_file({"a": before[::-1]}, path)
    np.testing.assert_array_equal(wn.load_file(path)["a"], np.arange(10000)[::-1])

"""weightstore.open: what it takes, what a File says, what a handle says."""

from __future__ import annotations

import io
import pathlib
from collections.abc import Mapping, Sequence, Set

import numpy as np
import pytest

import weightstore
import weightstore.numpy
from weightstore import errors

TENSORS = {
    "b.weight": np.arange(12, dtype=np.float32).reshape(3, 4),
    "a.bias": np.array([1, -2, 3], dtype=np.int16),
    "scalar": np.array(2.5, dtype=np.float64),
    "empty": np.zeros((0, 5), dtype=np.uint8),
}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "model.safetensors"
    weightstore.numpy.save_file(TENSORS, path, {"author": "<b>me</b>"})
    return path


def ways(path: pathlib.Path):
    yield weightstore.open(path)
    yield weightstore.open(str(path), backend="pread")
    yield weightstore.open(path.read_bytes())
    yield weightstore.open(bytearray(path.read_bytes()), backend="pread")
    yield weightstore.open(memoryview(path.read_bytes()))
    yield weightstore.open(io.BytesIO(path.read_bytes()))
    with path.open("rb") as stream:
        yield weightstore.open(stream)


def test_every_way_to_open_gives_the_same(path):
    count = 0
    for file in ways(path):
        with file:
            assert file.keys() == sorted(TENSORS)
            for name, expected in TENSORS.items():
                handle = file[name]
                assert handle.name == name
                assert handle.shape == expected.shape
                assert handle.nbytes == expected.nbytes
                assert handle.bytes() == expected.tobytes()
                np.testing.assert_array_equal(handle.numpy(), expected, strict=True)
                assert handle.param_id is None
                assert handle.scheme is None
        count += 1
    assert count == 7


def test_a_file_is_a_mapping(path):
    with weightstore.open(path) as file:
        assert isinstance(file, Mapping)
        assert len(file) == 4
        assert list(file) == ["a.bias", "b.weight", "empty", "scalar"]
        assert "scalar" in file
        assert "Scalar" not in file
        assert 3 not in file
        assert "\ud800" not in file
        assert {name: handle.dtype for name, handle in file.items()} == {
            "a.bias": "I16",
            "b.weight": "F32",
            "empty": "U8",
            "scalar": "F64",
        }
        assert file.get("nothing") is None
        assert file == file
        assert file != weightstore.open(path)


def test_keys_are_a_set_and_a_sequence(path):
    keys = weightstore.open(path).keys()
    assert isinstance(keys, Set)
    assert isinstance(keys, Sequence)
    assert keys == sorted(TENSORS)
    assert keys == TENSORS.keys()
    assert keys[0] == "a.bias"
    assert keys[-2:] == ["empty", "scalar"]
    assert keys & {"empty", "x"} == {"empty"}
    assert list(reversed(keys)) == sorted(TENSORS, reverse=True)
    assert "empty" in keys


def test_what_the_header_says(path):
    file = weightstore.open(path)
    assert file.metadata == {"author": "<b>me</b>"}
    assert file.scalars == {}
    assert file.format == "safetensors"
    assert file.path == str(path)
    assert weightstore.open(path.read_bytes()).path is None
    assert weightstore.open(weightstore.numpy.save({})).metadata == {}


def test_burnpack(tmp_path):
    path = tmp_path / "model.bpk"
    weightstore.numpy.save_file(
        TENSORS,
        path,
        {"k": "v"},
        param_ids={"scalar": 2**64 - 1},
        scalars={"i": -1, "u": 2**64 - 1, "f": 0.5, "b": True},
    )
    with weightstore.open(path) as file:
        assert file.format == "burnpack"
        assert file["scalar"].param_id == 2**64 - 1
        assert file.scalars == {"i": -1, "u": 2**64 - 1, "f": 0.5, "b": True}
        assert type(file.scalars["b"]) is bool
        assert file.metadata["k"] == "v"
        for name, expected in TENSORS.items():
            np.testing.assert_array_equal(file[name].numpy(), expected, strict=True)


def test_mapped_arrays_are_read_only_and_shared(path):
    file = weightstore.open(path)
    array = file["b.weight"].numpy()
    assert not array.flags.writeable
    assert not array.flags.owndata
    assert array.ctypes.data == file["b.weight"].numpy().ctypes.data


def test_pread_arrays_are_writable_and_apart(path):
    file = weightstore.open(path, backend="pread")
    array = file["b.weight"].numpy()
    array[:] = 7
    np.testing.assert_array_equal(file["b.weight"].numpy(), TENSORS["b.weight"])


def test_asarray(path):
    handle = weightstore.open(path)["b.weight"]
    assert not np.asarray(handle).flags.writeable
    assert np.array(handle).flags.writeable
    np.testing.assert_array_equal(np.asarray(handle[1:3]), TENSORS["b.weight"][1:3])
    assert np.asarray(handle, dtype=np.float64).dtype == np.float64
    with pytest.raises(ValueError, match="copy"):
        np.asarray(handle, dtype=np.float64, copy=False)


def test_load(path):
    with weightstore.open(path) as file:
        loaded = file.load()
        part = file.load(["scalar", "a.bias"])
    assert loaded.keys() == TENSORS.keys()
    assert list(part) == ["scalar", "a.bias"]
    for name, array in loaded.items():
        np.testing.assert_array_equal(array, TENSORS[name], strict=True)
        assert array.flags.writeable
        assert array.flags.aligned
    with pytest.raises(errors.TensorNotFound):
        weightstore.open(path).load(["nothing"])
    with pytest.raises(ValueError, match="framework"):
        weightstore.open(path).load(framework="abacus")


def test_load_into(path):
    file = weightstore.open(path)
    strided = np.zeros((3, 8), dtype=np.float32)[:, ::2]
    swapped = np.zeros(3, dtype=">i2")
    plain = np.zeros((), dtype=np.float64)
    file.load_into({"b.weight": strided, "a.bias": swapped, "scalar": plain, "empty": np.zeros((0, 5), np.uint8)})
    np.testing.assert_array_equal(strided, TENSORS["b.weight"])
    np.testing.assert_array_equal(swapped, TENSORS["a.bias"])
    assert plain == 2.5


def read_only() -> np.ndarray:
    array = np.zeros((), dtype=np.float64)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("name", "target", "error", "says"),
    [
        ("scalar", np.zeros((), np.float32), ValueError, "float32"),
        ("scalar", np.zeros((1,), np.float64), ValueError, "shape"),
        ("scalar", read_only(), ValueError, "read-only"),
        ("scalar", [2.5], TypeError, "list"),
        ("nothing", np.zeros(()), KeyError, "nothing"),
    ],
)
def test_load_into_checks_all_before_it_reads(path, name, target, error, says):
    first = np.zeros((3, 4), dtype=np.float32)
    with pytest.raises(error, match=says):
        weightstore.open(path).load_into({"b.weight": first, name: target})
    assert not first.any()


def test_load_into_refuses_targets_that_share_memory(tmp_path):
    weightstore.numpy.save_file({"a": np.ones(4, np.uint8), "b": np.zeros(4, np.uint8)}, tmp_path / "m.safetensors")
    room = np.full(6, 7, np.uint8)
    with pytest.raises(ValueError, match="shares memory with that of tensor 'a'"):
        weightstore.open(tmp_path / "m.safetensors").load_into({"a": room[:4], "b": room[2:]})
    assert (room == 7).all()


def test_len_of_a_handle(path):
    file = weightstore.open(path)
    assert len(file["b.weight"]) == 3
    assert [row.bytes() for row in file["a.bias"]] == [b"\1\0", b"\xfe\xff", b"\3\0"]
    with pytest.raises(TypeError):
        len(file["scalar"])


def test_repr(path):
    file = weightstore.open(path)
    assert repr(file) == f"<File {str(path)!r}, safetensors, 4 tensors>"
    assert repr(file["b.weight"][0]) == "<TensorHandle 'b.weight' F32 4, 16 B>"
    assert "closed" not in repr(file)
    file.close()
    assert "closed" in repr(file)


def test_html_is_escaped():
    name = "<script>alert(1)</script>"
    html = weightstore.open(weightstore.numpy.save({name: np.zeros(3)}))._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "F64" in html


def test_html_of_many_tensors_is_short():
    html = weightstore.open(weightstore.numpy.save({f"t{i}": np.zeros(1) for i in range(1000)}))._repr_html_()
    assert html.count("<tr>") < 300
    assert "more" in html


def test_closed(path):
    file = weightstore.open(path)
    handle = file["b.weight"]
    array = handle.numpy()
    with file:
        pass
    assert file.closed
    for access in (
        lambda: file["b.weight"],
        lambda: list(file),
        lambda: len(file),
        lambda: "x" in file,
        lambda: file.metadata,
        lambda: file.format,
        lambda: file.load(),
        lambda: file.verify(),
        lambda: handle.numpy(),
        lambda: handle.bytes(),
        lambda: handle[0],
        lambda: file.__enter__(),
    ):
        with pytest.raises(ValueError, match="File is closed") as caught:
            access()
        assert isinstance(caught.value, weightstore.StoreError)
    np.testing.assert_array_equal(array, TENSORS["b.weight"])
    file.close()


@pytest.mark.parametrize("options", [{"backend": "floppy"}, {"verify": "maybe"}])
def test_options_are_checked(path, options):
    with pytest.raises(ValueError, match=next(iter(options.values()))):
        weightstore.open(path, **options)


def test_what_cannot_be_opened():
    with pytest.raises(TypeError, match="int"):
        weightstore.open(3)


def test_a_file_object_that_shrinks(path):
    stream = io.BytesIO(path.read_bytes())
    file = weightstore.open(stream)
    stream.truncate(200)
    with pytest.raises(OSError, match="shrunk"):
        file["b.weight"].numpy()


def test_a_file_object_that_fails(path):
    class Broken(io.BytesIO):
        broken = False

        def readinto(self, buffer):
            if self.broken:
                raise RuntimeError("tape is torn")
            return super().readinto(buffer)

    stream = Broken(path.read_bytes())
    file = weightstore.open(stream)
    stream.broken = True
    with pytest.raises(RuntimeError, match="tape is torn"):
        file.load()


def test_a_file_object_that_reads_little_at_a_time(path):
    class Slow(io.BytesIO):
        def readinto(self, buffer):
            return super().readinto(memoryview(buffer)[:3])

    np.testing.assert_array_equal(weightstore.open(Slow(path.read_bytes()))["b.weight"].numpy(), TENSORS["b.weight"])


def test_types_numpy_lacks(write_raw):
    file = weightstore.open(write_raw({"f4": ("F4", (2, 4), b"\x12\x34\x56\x78"), "f6": ("F6_E2M3", (4,), b"abc")}))
    for name in ("f4", "f6"):
        with pytest.raises(TypeError, match=rf"{name}.*\.bytes\(\)"):
            file[name].numpy()
        with pytest.raises(TypeError, match=r"\.bytes\(\)"):
            file.load([name])
    assert file["f4"].bytes() == b"\x12\x34\x56\x78"
    assert file["f6"].nbytes == 3


def test_burnpack_booleans(write_raw):
    data = write_raw({"wide": ("BoolU32", (3,), bytes([1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0]))}, "burnpack", burn="0.21")
    for backend in ("mmap", "pread"):
        array = weightstore.open(data, backend=backend)["wide"].numpy()
        assert array.dtype == bool
        assert array.tolist() == [True, False, True]
        assert weightstore.open(data, backend=backend)["wide"][1:].numpy().tolist() == [False, True]
    target = np.zeros(3, dtype=bool)
    weightstore.open(data).load_into({"wide": target})
    assert target.tolist() == [True, False, True]

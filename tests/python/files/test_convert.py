"""weightstore.convert: everything is kept, or refused."""

from __future__ import annotations

import json
import logging

import numpy as np
import pytest

import weightstore
import weightstore.numpy
from weightstore import _core, errors

TENSORS = {
    "z": np.arange(12, dtype=np.float32).reshape(3, 4),
    "a": np.arange(5, dtype=np.int64),
    "flag": np.array([True, False]),
    "empty": np.zeros((0, 2), np.float16),
}


def test_a_file_of_burn_comes_out_byte_for_byte(testdata, tmp_path):
    source = testdata / "fixtures" / "burnpack" / "mnist.bpk"
    weightstore.convert(source, tmp_path / "copy.bpk")
    assert (tmp_path / "copy.bpk").read_bytes() == source.read_bytes()


def test_there_and_back(tmp_path, contents):
    first, second, third = tmp_path / "1.safetensors", tmp_path / "2.bpk", tmp_path / "3.safetensors"
    weightstore.numpy.save_file(TENSORS, first, {"k": "v", "": ""})
    weightstore.convert(first, second)
    weightstore.convert(second, third)
    assert third.read_bytes() == first.read_bytes()
    with weightstore.open(first) as one, weightstore.open(second) as two:
        assert two.format == "burnpack"
        assert contents(one) == contents(two)
        # Says that there was no `format`, so that the way back does not make one up.
        assert two.metadata == {**one.metadata, "format": "safetensors"}


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}, {"format": "np", "k": "v"}, {"k": "v"}])
@pytest.mark.parametrize("checksums", [True, False])
@pytest.mark.parametrize("middle", ["m.bpk", "m.safetensors.index.json"])
def test_there_and_back_with_any_metadata(tmp_path, metadata, checksums, middle):
    first, third = tmp_path / "1.safetensors", tmp_path / "3.safetensors"
    weightstore.numpy.save_file(TENSORS, first, metadata, checksums=checksums)
    weightstore.convert(first, tmp_path / middle)
    weightstore.convert(tmp_path / middle, third)
    assert third.read_bytes() == first.read_bytes()


def test_there_and_back_without_a_format_beside_checksums(tmp_path, write_raw):
    """As releases before wrote them."""
    first, second, third = tmp_path / "1.safetensors", tmp_path / "2.bpk", tmp_path / "3.safetensors"
    entry = json.dumps({"a": f"{_core.crc32c(b'1'):08x}"}, separators=(",", ":"))
    write_raw({"a": ("U8", (1,), b"1")}, metadata={"weightstore.crc32c": entry}, path=first)
    weightstore.convert(first, second)
    weightstore.convert(second, third)
    assert third.read_bytes() == first.read_bytes()
    assert weightstore.open(third, verify="full").verify() == 1


@pytest.mark.parametrize(
    ("burnpack", "safetensors"),
    [
        (None, {}),
        ({"format": "burnpack"}, {"format": "pt"}),
        ({"format": "burnpack", "producer": "burn"}, {"format": "pt", "producer": "burn"}),
        ({"version": "1"}, {"format": "pt", "version": "1"}),
        ({"format": "np"}, {"format": "np"}),
    ],
)
@pytest.mark.parametrize("target", ["2.safetensors", "2.safetensors.index.json"])
def test_metadata_of_burnpack_become_what_hugging_face_reads(tmp_path, burnpack, safetensors, target):
    source = tmp_path / "1.bpk"
    weightstore.numpy.save_file(TENSORS, source, burnpack)
    weightstore.convert(source, tmp_path / target)
    found = weightstore.open(tmp_path / target).metadata
    found.pop("total_size", None)
    assert found == safetensors
    for shard in tmp_path.glob("2-*.safetensors"):
        assert weightstore.open(shard).metadata.get("format") == safetensors.get("format")


def test_checksums_of_burnpack_bring_a_format(tmp_path):
    source, target = tmp_path / "1.bpk", tmp_path / "2.safetensors"
    weightstore.numpy.save_file(TENSORS, source, checksums=True)
    assert set(weightstore.open(source).metadata) == {"weightstore.crc32c"}
    weightstore.convert(source, target)
    assert weightstore.open(target).metadata["format"] == "pt"
    assert weightstore.open(target, verify="full").verify() == 4


def test_what_lies_between_and_behind_the_tensors_of_a_burnpack_file_is_not_copied(tmp_path):
    """Burn does not look there, and neither do we."""
    source, target = tmp_path / "1.bpk", tmp_path / "2.bpk"
    weightstore.numpy.save_file({"a": np.arange(3.0), "b": np.arange(3.0)}, source)
    good = source.read_bytes()
    data = bytearray(good) + b"behind"
    for at in (data.index(bytes(np.arange(3.0))) - 1, data.rindex(bytes(np.arange(3.0))) - 1):
        assert data[at] == 0
        data[at] = 1
    source.write_bytes(data)
    weightstore.convert(source, target)
    assert target.read_bytes() == good


def test_the_order_of_the_data_is_kept(tmp_path, write_raw):
    source, target = tmp_path / "m.bpk", tmp_path / "m.safetensors"
    write_raw({"a": ("U8", (1,), b"1"), "b": ("F64", (1,), bytes(8)), "c": ("U8", (1,), b"3")}, "burnpack", path=source)
    weightstore.convert(source, target)
    with weightstore.safe_open(target, "np") as file:
        assert file.offset_keys() == _core.Reader.open(source).names_in_order()


@pytest.mark.parametrize("metadata", [None, {}, {"k": "v"}])
def test_absent_and_empty_metadata_are_told_apart(tmp_path, metadata):
    source, target = tmp_path / "1.safetensors", tmp_path / "2.safetensors"
    weightstore.numpy.save_file(TENSORS, source, metadata)
    weightstore.convert(source, target)
    assert target.read_bytes() == source.read_bytes()


def test_burnpack_keeps_ids_and_scalars(tmp_path):
    source, target = tmp_path / "1.bpk", tmp_path / "2.bpk"
    weightstore.numpy.save_file(TENSORS, source, param_ids={"z": 7}, scalars={"step": 3, "rate": 0.5})
    weightstore.convert(source, target)
    assert target.read_bytes() == source.read_bytes()


def test_scalars_do_not_fit_safetensors(tmp_path):
    source, target = tmp_path / "1.bpk", tmp_path / "2.safetensors"
    weightstore.numpy.save_file(TENSORS, source, scalars={"step": 3})
    with pytest.raises(ValueError, match="step"):
        weightstore.convert(source, target)
    assert not target.exists()


def test_ids_are_dropped_with_a_warning(tmp_path, caplog):
    source, target = tmp_path / "1.bpk", tmp_path / "2.safetensors"
    weightstore.numpy.save_file(TENSORS, source, param_ids={"z": 7, "a": 8})
    with caplog.at_level(logging.WARNING, "weightstore"):
        weightstore.convert(source, target)
    assert "param ids" in caplog.text
    assert "2 tensors" in caplog.text
    assert len(weightstore.open(target)) == 4


def test_types(tmp_path, write_raw):
    source = tmp_path / "1.bpk"
    write_raw(
        {"flex": ("Flex32", (1,), b"abcd"), "bool": ("BoolU8", (2,), b"\1\0")}, "burnpack", path=source, burn="0.21"
    )
    weightstore.convert(source, tmp_path / "2.safetensors")
    with weightstore.open(tmp_path / "2.safetensors") as file:
        assert (file["flex"].dtype, file["flex"].bytes()) == ("F32", b"abcd")
        assert (file["bool"].dtype, file["bool"].bytes()) == ("BOOL", b"\1\0")
    weightstore.convert(source, tmp_path / "3.bpk")
    assert (tmp_path / "3.bpk").read_bytes() == source.read_bytes()

    write_raw({"wide": ("BoolU32", (1,), bytes(4))}, "burnpack", path=source, burn="0.21")
    with pytest.raises(ValueError, match="'wide'.*BoolU32"):
        weightstore.convert(source, tmp_path / "4.safetensors")

    weightstore.numpy.save_file({"c": np.zeros(1, np.complex64)}, tmp_path / "5.safetensors")
    with pytest.raises(errors.BurnpackError, match="'c'.*C64"):
        weightstore.convert(tmp_path / "5.safetensors", tmp_path / "6.bpk")


def test_shards(tmp_path, contents):
    source, index = tmp_path / "1.safetensors", tmp_path / "m.safetensors.index.json"
    weightstore.numpy.save_file(TENSORS, source, {"k": "v"})
    weightstore.convert(source, index, max_shard_size=45)
    assert len(list(tmp_path.glob("m-*-of-*.safetensors"))) == 3
    weightstore.convert(index, tmp_path / "3.safetensors")
    with (
        weightstore.open(source) as one,
        weightstore.open(index) as two,
        weightstore.open(tmp_path / "3.safetensors") as three,
    ):
        assert contents(one) == contents(two) == contents(three)
    assert (tmp_path / "3.safetensors").read_bytes() == source.read_bytes()
    with pytest.raises(ValueError, match="max_shard_size"):
        weightstore.convert(source, tmp_path / "4.bpk", max_shard_size="1GB")


def test_targets(tmp_path):
    source = tmp_path / "1.safetensors"
    weightstore.numpy.save_file(TENSORS, source)
    with pytest.raises(ValueError, match="txt"):
        weightstore.convert(source, tmp_path / "2.txt")
    (tmp_path / "3.bpk").touch()
    with pytest.raises(errors.ConflictError):
        weightstore.convert(source, tmp_path / "3.bpk")
    weightstore.convert(source, tmp_path / "3.bpk", overwrite=True, durable=False)
    assert len(weightstore.open(tmp_path / "3.bpk")) == 4


def test_onto_itself(tmp_path):
    source = tmp_path / "1.safetensors"
    weightstore.numpy.save_file({"a": np.arange(10**6)}, source)
    before = source.read_bytes()
    weightstore.convert(source, source, overwrite=True)
    assert source.read_bytes() == before


def test_progress(tmp_path):
    source = tmp_path / "1.safetensors"
    weightstore.numpy.save_file(TENSORS, source)
    seen = []
    weightstore.convert(source, tmp_path / "2.bpk", progress=lambda *args: seen.append(args))
    assert seen[-1][0] == seen[-1][1] > 0
    with pytest.raises(errors.OperationCancelled):
        weightstore.convert(source, tmp_path / "3.bpk", progress=lambda *args: False)
    assert not (tmp_path / "3.bpk").exists()

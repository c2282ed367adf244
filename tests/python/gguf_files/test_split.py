"""Models that are split over several files."""

from __future__ import annotations

import io
import struct

import gguf
import numpy as np
import pytest

import weightstore
from support.gguf_files import TYPE, VALUE, entry, file, tensor, u32


@pytest.fixture
def split(tmp_path):
    """Three files of the gguf package's writer, with two tensors each."""
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "llama", split_max_tensors=2)
    writer.add_uint32("llama.block_count", 3)
    values = {f"t{i}": np.full((2, 32), i, np.float32) for i in range(6)}
    for name, value in values.items():
        writer.add_tensor(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    paths = sorted(tmp_path.glob("*.gguf"))
    assert [path.name for path in paths] == [f"model-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
    return paths, values


@pytest.mark.parametrize("number", [0, 1, 2])
def test_any_part_opens_the_model(split, number):
    paths, values = split
    with weightstore.open(paths[number]) as model:
        assert sorted(model) == sorted(values)
        assert dict(model.metadata) == {"general.architecture": "llama", "llama.block_count": 3}
        for name, value in values.items():
            np.testing.assert_array_equal(model[name].numpy(), value)
        assert {model[name].shard for name in model} == set(map(str, paths))


def test_everything_reads_the_whole_model(split, tmp_path):
    paths, values = split
    weightstore.convert(paths[0], tmp_path / "whole.gguf", dtype="Q8_0")
    whole = weightstore.open(tmp_path / "whole.gguf")
    assert sorted(whole) == sorted(values)
    assert "split.count" not in whole.metadata
    target = {name: np.zeros_like(value) for name, value in values.items()}
    weightstore.load_from(target, paths[0])
    np.testing.assert_array_equal(target["t5"], values["t5"])
    with weightstore.Pager(paths[1], budget="1MB") as pager:
        np.testing.assert_array_equal(pager.acquire("t0").numpy(), values["t0"])


def test_a_part_that_is_missing(split):
    paths, _ = split
    paths[1].unlink()
    with pytest.raises(weightstore.StoreError, match="model-00002-of-00003.gguf"):
        weightstore.open(paths[0])


def test_a_part_under_another_name(split):
    paths, _ = split
    other = paths[0].rename(paths[0].with_name("model.gguf"))
    with pytest.raises(weightstore.StoreError, match=r"part 1 of 3 of a model.*'-00001-of-00003\.gguf'"):
        weightstore.open(other)


def test_a_part_without_its_path(split):
    paths, _ = split
    for contents in (paths[0].read_bytes(), io.BytesIO(paths[0].read_bytes())):
        with pytest.raises(weightstore.StoreError, match="open it by its path"):
            weightstore.open(contents)


def part(number, count, tensors, total=2):
    entries = [
        entry("split.no", VALUE.UINT16, struct.pack("<H", number)),
        entry("split.count", VALUE.UINT16, struct.pack("<H", count)),
        entry("split.tensors.count", VALUE.INT32, struct.pack("<i", total)),
    ]
    return file(entries, tensors, bytes(64))


ONE, OTHER = tensor("a", [4], TYPE.F32, 0), tensor("b", [4], TYPE.F32, 0)


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (part(0, 2, [ONE]), part(0, 2, [OTHER]), "is named as part 2 of 2 of a model, but says that it is part 1"),
        (part(0, 2, [ONE]), part(1, 3, [OTHER]), "part 2 of 3"),
        (part(0, 2, [ONE]), file((), [OTHER], bytes(64)), "but is a model of its own"),
        (part(0, 2, [ONE]), b"PK\5\6" + bytes(18), "ZIP"),
        (part(0, 2, [ONE]), part(1, 2, [ONE]), "the name is given twice"),
        (part(0, 2, [ONE], 3), part(1, 2, [OTHER], 3), "2 tensors together; the model says that there are 3"),
        (part(0, 2, [ONE], 2), part(1, 2, [OTHER], 3), "the files are not of one model"),
        (part(5, 2, [ONE]), part(1, 2, [OTHER]), "split.count is 2 and split.no is 5"),
        (file([u32("split.count", 2)]), part(1, 2, [OTHER]), "split.no is not there"),
        (file([entry("split.count", VALUE.FLOAT32, bytes(4))]), part(1, 2, [OTHER]), "whole number"),
    ],
)
def test_parts_that_contradict_each_other(tmp_path, first, second, message):
    (tmp_path / "m-00001-of-00002.gguf").write_bytes(first)
    (tmp_path / "m-00002-of-00002.gguf").write_bytes(second)
    with pytest.raises(weightstore.StoreError, match=message):
        weightstore.open(tmp_path / "m-00001-of-00002.gguf")


def test_a_model_that_says_it_is_one_of_one():
    assert len(weightstore.open(part(0, 1, [ONE]))) == 1

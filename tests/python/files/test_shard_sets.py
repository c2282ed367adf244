"""Sets of shards that replace each other, and single files that sets replace."""

from __future__ import annotations

import json
import os
import re

import numpy as np
import pytest
import safetensors.numpy

import weightstore
import weightstore.numpy as wn
from weightstore.errors import ConflictError, FormatError

INDEX = "model.safetensors.index.json"
FILE = "model.safetensors"


def tensors(value: int, count: int = 3) -> dict[str, np.ndarray]:
    return {f"t{i}": np.full(100, value + i, "u1") for i in range(count)}


def assert_holds(path, value: int, count: int = 3) -> None:
    with weightstore.open(path) as file:
        assert {name: file[name].numpy().tolist() for name in file} == {
            name: array.tolist() for name, array in tensors(value, count).items()
        }


def read_by_index(folder) -> dict[str, list[int]]:
    """As loaders do that know nothing of weightstore: by the index, with the safetensors package."""
    weight_map = json.loads((folder / INDEX).read_text())["weight_map"]
    result = {}
    for shard in set(weight_map.values()):
        for name, array in safetensors.numpy.load_file(folder / shard).items():
            assert weight_map[name] == shard
            result[name] = array.tolist()
    return result


def names(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_replaced_set_is_read_by_its_index(tmp_path):
    for value, count in ((1, 3), (50, 2), (90, 5)):
        wn.save_file(tensors(value, count), tmp_path / INDEX, max_shard_size=100)
        assert read_by_index(tmp_path) == {k: v.tolist() for k, v in tensors(value, count).items()}
        assert_holds(tmp_path / INDEX, value, count)
        assert len(names(tmp_path)) == count + 1
        ending = f"of-{count:05}.safetensors"
        pattern = rf"model-\d{{5}}-{ending}" if value == 1 else rf"model-[0-9a-f]{{8}}-\d{{5}}-{ending}"
        assert all(re.fullmatch(pattern, name) for name in names(tmp_path) if name != INDEX)


def test_a_set_replaces_the_file_of_its_name(tmp_path):
    wn.save_file(tensors(1), tmp_path / FILE, max_shard_size=1000)
    assert names(tmp_path) == [FILE]
    wn.save_file(tensors(50), tmp_path / FILE, max_shard_size=100)
    assert FILE not in names(tmp_path)
    assert_holds(tmp_path / INDEX, 50)
    assert len(names(tmp_path)) == 4


def test_a_file_replaces_the_set_of_its_name(tmp_path):
    wn.save_file(tensors(1), tmp_path / FILE, max_shard_size=100)
    wn.save_file(tensors(20), tmp_path / FILE, max_shard_size=100)
    (tmp_path / "model-00001-of-00009.safetensors").write_bytes(b"theirs")
    wn.save_file(tensors(50), tmp_path / FILE, max_shard_size=1000)
    assert names(tmp_path) == ["model-00001-of-00009.safetensors", FILE]
    assert_holds(tmp_path / FILE, 50)


def test_a_set_with_other_files_is_not_replaced_by_a_file(tmp_path):
    """It is not what a save with max_shard_size wrote."""
    wn.save_file(tensors(1), tmp_path / "part.safetensors")
    weight_map = dict.fromkeys(tensors(1), "part.safetensors")
    (tmp_path / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    wn.save_file(tensors(50), tmp_path / FILE, max_shard_size=1000)
    assert_holds(tmp_path / INDEX, 1)
    assert_holds(tmp_path / FILE, 50)


@pytest.mark.parametrize("target", [INDEX, FILE])
def test_a_save_that_names_one_form_leaves_the_other(tmp_path, target):
    wn.save_file(tensors(1), tmp_path / FILE)
    wn.save_file(tensors(1), tmp_path / INDEX, max_shard_size=100)
    wn.save_file(tensors(50), tmp_path / target)
    assert_holds(tmp_path / FILE, 50 if target == FILE else 1)
    assert_holds(tmp_path / INDEX, 50 if target == INDEX else 1)


@pytest.mark.parametrize("first", [100, 1000])
@pytest.mark.parametrize("then", [100, 1000])
def test_without_overwrite_either_form_is_a_conflict(tmp_path, first, then):
    wn.save_file(tensors(1), tmp_path / FILE, max_shard_size=first)
    before = names(tmp_path)
    with pytest.raises(ConflictError) as caught:
        wn.save_file(tensors(50), tmp_path / FILE, max_shard_size=then, overwrite=False)
    assert isinstance(caught.value, FileExistsError)
    assert names(tmp_path) == before
    assert_holds(tmp_path / (FILE if first == 1000 else INDEX), 1)


def test_a_directory_is_not_replaced_by_a_set(tmp_path):
    (tmp_path / FILE).mkdir()
    with pytest.raises(IsADirectoryError):
        wn.save_file(tensors(1), tmp_path / FILE, max_shard_size=100)
    assert names(tmp_path) == [FILE]


def test_a_name_cannot_steer_the_terminal(tmp_path):
    shard = "\x1b[31mred\u009b.safetensors"
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": {"a": shard}}))
    with pytest.raises(OSError, match="red") as caught:
        weightstore.open(tmp_path / INDEX)
    assert str(caught.value).isprintable()
    assert caught.value.filename == os.path.join(tmp_path, shard)
    (tmp_path / shard).write_bytes(b"no tensors")
    with pytest.raises(FormatError) as refused:
        weightstore.open(tmp_path / INDEX)
    assert str(refused.value).isprintable()
    wn.save_file({"b": np.zeros(1)}, tmp_path / shard)
    with pytest.raises(FormatError) as wrong:
        weightstore.open(tmp_path / INDEX)
    assert str(wrong.value).isprintable()
    assert shard not in str(wrong.value)


@pytest.mark.parametrize("overwrite", [True, False])
@pytest.mark.parametrize("sharded", [True, False])
def test_what_another_save_put_there_meanwhile_stays(tmp_path, sharded, overwrite):
    path = tmp_path / FILE
    sizes = {True: 100, False: 10**6}

    def other_save(done, total, name):
        if not other_save.ran:
            other_save.ran = True
            wn.save_file(tensors(5), path, max_shard_size=sizes[not sharded])

    other_save.ran = False
    wn.save_file(tensors(1), path, max_shard_size=sizes[sharded], overwrite=overwrite, progress=other_save)
    assert_holds(tmp_path / (INDEX if sharded else FILE), 1)
    assert_holds(tmp_path / (FILE if sharded else INDEX), 5)

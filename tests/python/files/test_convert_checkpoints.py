"""Checkpoints with tables, converted: the tables are there in every format, and the way back gives an equal checkpoint."""

from __future__ import annotations

import json

import pytest

import weightstore
from support.torch_classes import torch
from weightstore import errors

TARGETS = ["one.safetensors", "one.bpk", "new.safetensors.index.json"]
INDEX = "model.safetensors.index.json"
IDS = torch.arange(2000) * 7919


def make_tables(shard=0, shard_num=1):
    begin, end = 65536 * shard // shard_num, 65536 * (shard + 1) // shard_num
    user = torch.classes.store.HashTable("user", [4], torch.float32, begin, end, 65536, 4096, [])
    user.add_slot("exp_avg", [4], torch.float32, 0.0)
    both = torch.classes.store.HashTable("both", [2], torch.bfloat16, begin, end, 65536, 4096, ["left.a", "right"])
    return {"user": user, "both": both}


def own_ids(table):
    begin, end, size = table.slice()
    return IDS[(IDS % size >= begin) & (IDS % size < end)]


def fill(tables):
    user, both = tables["user"], tables["both"]
    ids = own_ids(user)
    user.insert(ids, (ids[:, None] * 10 + torch.arange(4)).float())
    user.write_slot("exp_avg", ids, (ids[:, None] + torch.arange(4)).float())
    for child in range(2):
        ids = both.coalesced_ids(child, own_ids(both)[: 100 * (child + 1)])
        both.insert(ids, torch.full((len(ids), 2), child + 0.5, dtype=torch.bfloat16))


def dense():
    return {"w": torch.arange(12.0).reshape(3, 4), "user.w/0-1-2": torch.arange(3), "none": torch.empty(0, 2)}


def contents(tables):
    """All rows of all slots, by ascending ids."""
    found = {}
    for name, table in tables.items():
        ids = table.ids().sort().values
        found[name] = {"id": ids}
        for slot in table.slot_names():
            found[name][slot] = table.read_slot(slot, ids)
    return found


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    path = tmp_path_factory.mktemp("checkpoint")
    for shard in (1, 0):
        tables = make_tables(shard, 2)
        fill(tables)
        weightstore.Saver(shard, 2, 2, path, tables, dense(), attempt="first", run="test", max_block_bytes=1024).save()
    return path


def check_loads(path, *, shard_num=1):
    """Loads all of it, checksums compared, and looks at every value."""
    for shard in range(shard_num):
        tables, expected = make_tables(shard, shard_num), make_tables(shard, shard_num)
        fill(expected)
        loaded = {name: torch.zeros_like(value) for name, value in dense().items()}
        weightstore.Loader(path, tables, loaded, verify="full").load()
        for name, value in dense().items():
            assert torch.equal(loaded[name], value), name
        ours, theirs = contents(tables), contents(expected)
        # Rows of `both` are by child and shard, so that another number of shards fills other ones.
        for name in ("user", "both") if shard_num == 2 else ("user",):
            assert ours[name].keys() == theirs[name].keys()
            for slot in ours[name]:
                assert torch.equal(ours[name][slot], theirs[name][slot]), (name, slot)


def shown(path):
    reader = weightstore.CheckpointReader(path)
    return {
        name: (reader.tensor_slices(name), reader.tensor_dtype(name), reader.read_tensor(name))
        for name in reader.tensor_names()
    }


def check_equal(path, other):
    ours, theirs = shown(path), shown(other)
    assert ours.keys() == theirs.keys()
    for name, (slices, dtype, values) in ours.items():
        assert slices == theirs[name][0], name
        assert dtype == theirs[name][1], name
        assert torch.equal(values, theirs[name][2]), name


@pytest.mark.parametrize("target", TARGETS)
def test_tables_survive_conversion(checkpoint, tmp_path, target):
    path = tmp_path / target
    weightstore.convert(checkpoint / INDEX, path, max_shard_size=4096 if target.endswith("json") else None)
    check_equal(path, checkpoint)
    assert "user@exp_avg" in shown(path)
    assert "left.a@id" in shown(path)
    checksums = weightstore.CheckpointReader(checkpoint).verify()
    assert weightstore.CheckpointReader(path).verify() == checksums > 0
    check_loads(path)
    check_loads(path, shard_num=2)
    assert weightstore.open(path, verify="full").verify() == checksums


@pytest.mark.parametrize("middle", TARGETS)
@pytest.mark.parametrize("last", TARGETS)
def test_there_and_back(checkpoint, tmp_path, middle, last):
    weightstore.convert(checkpoint / INDEX, tmp_path / f"a-{middle}")
    weightstore.convert(tmp_path / f"a-{middle}", tmp_path / f"b-{last}")
    weightstore.convert(tmp_path / f"b-{last}", tmp_path / INDEX, max_shard_size=10_000)
    check_equal(tmp_path, checkpoint)
    assert weightstore.CheckpointReader(tmp_path).verify() == weightstore.CheckpointReader(checkpoint).verify()
    check_loads(tmp_path, shard_num=2)


def test_the_entry_describes_the_new_files(checkpoint, tmp_path):
    saved = json.loads((checkpoint / INDEX).read_text())["metadata"]
    weightstore.convert(checkpoint / INDEX, tmp_path / "one.safetensors")
    entry = json.loads(weightstore.open(tmp_path / "one.safetensors").metadata["weightstore"])
    assert entry == {"version": 1, "tables": saved["weightstore"]["tables"]}
    weightstore.convert(tmp_path / "one.safetensors", tmp_path / INDEX)
    metadata = json.loads((tmp_path / INDEX).read_text())["metadata"]
    assert metadata == {"total_size": saved["total_size"], "format": "pt", "weightstore": entry}


def test_a_save_does_not_take_a_converted_set_for_its_own(checkpoint, tmp_path):
    weightstore.convert(checkpoint / INDEX, tmp_path / INDEX)
    with pytest.raises(errors.ConflictError, match="did not write"):
        weightstore.Saver(path=tmp_path, tensors=dense()).save()
    check_equal(tmp_path, checkpoint)
    weightstore.Saver(path=tmp_path, tensors=dense(), overwrite=True).save()
    assert weightstore.CheckpointReader(tmp_path).tensor_names() == sorted(dense())


def test_blocks_that_are_left_out_are_not_described(checkpoint, tmp_path):
    """A store copies the metadata of nobody; a tool that copies them and drops tensors is told by the tensors."""
    one, two = tmp_path / "1.safetensors", tmp_path / "2.safetensors"
    weightstore.convert(checkpoint / INDEX, one)
    with weightstore.open(one) as file:
        kept = {name: value for name, value in file.load(framework="torch").items() if not name.startswith("user")}
        metadata = file.metadata
    weightstore.torch.save_file(kept, two, {"weightstore": metadata["weightstore"], "k": "v"})
    weightstore.convert(two, tmp_path / "3.safetensors")
    entry = json.loads(weightstore.open(tmp_path / "3.safetensors").metadata["weightstore"])
    assert sorted(entry["tables"]) == ["left.a", "right"]
    weightstore.torch.save_file({"w": torch.ones(1)}, two, {"weightstore": metadata["weightstore"], "k": "v"})
    weightstore.convert(two, tmp_path / "4.safetensors")
    assert weightstore.open(tmp_path / "4.safetensors").metadata == {"k": "v"}


@pytest.mark.parametrize("text", ["mine", "{}", '{"by": "me"}', "[1]", "{mine}"])
@pytest.mark.parametrize("target", TARGETS)
def test_what_others_keep_under_our_key(tmp_path, text, target):
    source, back = tmp_path / "1.safetensors", tmp_path / "2.safetensors"
    weightstore.torch.save_file({"w": torch.ones(1)}, source, {"weightstore": text, "format": "pt"})
    weightstore.convert(source, tmp_path / target)
    assert weightstore.CheckpointReader(tmp_path / target).tensor_names() == ["w"]
    weightstore.convert(tmp_path / target, back)
    found = weightstore.open(back).metadata["weightstore"]
    assert found == text or json.loads(found) == json.loads(text)


def test_an_entry_of_another_version_is_refused(tmp_path):
    source = tmp_path / "1.safetensors"
    weightstore.torch.save_file({"w": torch.ones(1)}, source, {"weightstore": '{"version": 2, "tables": {}}'})
    for read in (
        lambda: weightstore.convert(source, tmp_path / "2.safetensors"),
        lambda: weightstore.CheckpointReader(source),
    ):
        with pytest.raises(errors.FormatError, match="version 2"):
            read()
    assert not (tmp_path / "2.safetensors").exists()
    assert len(weightstore.open(source)) == 1


@pytest.mark.parametrize("target", TARGETS)
def test_what_has_no_checksums_is_not_verified_silently(tmp_path, target):
    saved = tmp_path / "saved"
    tables = make_tables()
    fill(tables)
    weightstore.Saver(path=saved, hashtables=tables, tensors=dense(), checksums=False).save()
    weightstore.convert(saved / INDEX, tmp_path / target)
    for path in (saved, tmp_path / target):
        with pytest.raises(errors.FormatError, match="have no checksum"):
            weightstore.CheckpointReader(path).verify()
        check_equal(path, saved)
    weightstore.convert(saved / INDEX, tmp_path / target, checksums=True, overwrite=True)
    assert weightstore.CheckpointReader(tmp_path / target).verify() > 0

"""Checkpoints that earlier versions wrote load, with tables, slots and children, into any number of shards."""

from __future__ import annotations

from pathlib import Path

import pytest

import weightstore
from golden import content
from support.torch_classes import torch

HERE = Path(__file__).parent
CHECKPOINTS = sorted(HERE.glob("*/checkpoint-*"))

every_checkpoint = pytest.mark.parametrize(
    "path", CHECKPOINTS, ids=[f"{path.parent.name}-{path.name}" for path in CHECKPOINTS]
)


def empty_table(name: str, children: list[str], shard: int, shard_num: int):
    begin, end = 65536 * shard // shard_num, 65536 * (shard + 1) // shard_num
    table = torch.classes.store.HashTable(name, [4], torch.float32, begin, end, 65536, 4096, children)
    table.add_slot("exp_avg", [2], torch.float32, 0.0)
    return table


def rows_of(table) -> dict[int, tuple[list[float], list[float]]]:
    ids = table.ids()
    embeddings = table.lookup(ids, False)[1].tolist()
    return dict(zip(ids.tolist(), zip(embeddings, table.read_slot("exp_avg", ids).tolist(), strict=True), strict=True))


def expected_row(table: str, id: int) -> tuple[list[float], list[float]]:
    return content.row(table, "embedding", id, 4), content.row(table, "exp_avg", id, 2)


@every_checkpoint
@pytest.mark.parametrize("shard_num", [1, 3])
def test_tables_load(path, shard_num):
    user, both = {}, {}
    for shard in range(shard_num):
        tables = {
            "user": empty_table("user", [], shard, shard_num),
            "both": empty_table("both", list(content.CHILD_IDS), shard, shard_num),
        }
        weightstore.Loader(path, tables, {}, strict=False).load()
        user |= rows_of(tables["user"])
        both |= rows_of(tables["both"])
    assert user == {id: expected_row("user", id) for id in content.TABLE_IDS}
    coalesced = empty_table("both", list(content.CHILD_IDS), 0, 1)
    assert both == {
        coalesced.coalesced_ids(number, torch.tensor([id])).item(): expected_row(child, id)
        for number, (child, ids) in enumerate(content.CHILD_IDS.items())
        for id in ids
    }


@every_checkpoint
def test_dense_tensors_load(path):
    tensors = {name: torch.zeros(shape) for name, (_, shape, _) in content.shard_set().items()}
    weightstore.Loader(path, {}, tensors, strict=False).load()
    assert {name: tensor.numpy().tobytes() for name, tensor in tensors.items()} == {
        name: data for name, (_, _, data) in content.shard_set().items()
    }


@every_checkpoint
def test_checkpoint_reader(path):
    reader = weightstore.CheckpointReader(path)
    reader.verify()
    columns = [f"{table}@{slot}" for table in ("user", "item", "shop") for slot in ("id", "embedding", "exp_avg")]
    assert sorted(reader.tensor_names()) == sorted([*columns, *content.shard_set()])
    assert sorted(reader.read_tensor("user@id").tolist()) == sorted(content.TABLE_IDS)

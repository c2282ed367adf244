"""`weightstore.HashTable`: every method of the TorchScript class, with types, docstrings and the package's errors."""

from __future__ import annotations

import inspect
import pydoc
import typing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weightstore
from support.torch_classes import torch
from weightstore import HashTable, HashTableSnapshot, errors

CLASSES = [
    (HashTable, lambda: HashTable("user", [2], torch.float32)),
    (HashTableSnapshot, lambda: HashTable("user", [2], torch.float32).snapshot()),
]


def script_methods(script_object: Any) -> dict[str, Any]:
    names = (name for name in script_object._method_names() if name[0] != "_" and not name.endswith("_getter"))
    return {name: script_object._get_method(name).schema for name in names}


@pytest.mark.parametrize(("cls", "make"), CLASSES)
def test_every_method_has_a_typed_and_documented_face(cls, make):
    methods = script_methods(make().script_object)
    assert len(methods) > 3
    page = pydoc.plain(pydoc.render_doc(cls))
    for name, schema in methods.items():
        face = getattr(cls, name)
        arguments = list(inspect.signature(face).parameters.values())
        assert [argument.name for argument in arguments[1:]] == [argument.name for argument in schema.arguments[1:]], (
            name
        )
        for argument, scripted in zip(arguments[1:], schema.arguments[1:], strict=True):
            assert (argument.default is not argument.empty) == scripted.has_default_value(), (name, argument)
            if scripted.has_default_value():
                assert argument.default == scripted.default_value, (name, argument)
        hints = typing.get_type_hints(face)
        assert hints.keys() == {"return", *(argument.name for argument in arguments[1:])}, name
        assert inspect.getdoc(face), name
        assert f" {name}(self" in page, name
    assert " script_object" in page


def test_the_face_and_the_script_object_are_one_table():
    table = HashTable("user", (2, 3), "bf16", 0, 32768, children=["a", "b"])
    table.add_slot("moment", [], np.float32, 0.5)
    again = HashTable.of(table.script_object)
    ids = table.coalesced_ids(1, torch.arange(5))
    rows, embeddings = table.lookup(ids, insert=True)
    assert embeddings.shape == (5, 2, 3)
    assert embeddings.dtype == torch.bfloat16
    assert len(again) == again.size() == table.script_object.size() == 5
    assert HashTable.of(table) is table
    assert (again.name(), again.children(), again.slice()) == ("user", ["a", "b"], (0, 32768, 65536))
    assert again.slot_names() == ["embedding", "moment"]
    assert torch.equal(again.ids().sort().values, ids.sort().values)
    assert again.read_slot("moment", ids).tolist() == [0.5] * 5
    assert again.write_slot("moment", ids[:2], torch.tensor([1.0, 2.0])) == 2
    assert table.read_slot_rows("moment", rows).tolist() == [1.0, 2.0, 0.5, 0.5, 0.5]
    assert table.write_slot_rows("moment", rows[:1], torch.tensor([3.0])) == 1
    out = torch.zeros(5, 2, 3, dtype=torch.bfloat16)
    table.insert(ids, torch.ones(5, 2, 3, dtype=torch.bfloat16))
    assert torch.equal(table.lookup_out(ids, False, out), rows)
    assert torch.equal(out, torch.ones(5, 2, 3, dtype=torch.bfloat16))
    assert repr(table) == "<HashTable 'user', 5 rows, slots embedding, moment, slice (0, 32768, 65536)>"


def test_snapshots_eviction_and_changes():
    table = HashTable("user", [1], torch.float32)
    table.reserve(100)
    table.set_initializer("constant", 2.5)
    ids = torch.arange(10)
    assert table.lookup(ids, True)[1].tolist() == [[2.5]] * 10
    snapshot = table.snapshot()
    assert isinstance(snapshot, HashTableSnapshot)
    assert table.touch(ids, 1) == 10
    assert table.touch(ids[:4], 2) == 4
    assert table.evict_older(2) == 6
    assert table.evict_rarer(3) == 4
    assert table.erase(ids) == len(table) == 0
    assert not table.contains(ids).any()
    assert (len(snapshot), snapshot.size(), snapshot.epoch()) == (10, 10, table.epoch())
    assert snapshot.slot("embedding").tolist() == [[2.5]] * 10
    assert sorted(snapshot.ids().tolist()) == ids.tolist()
    changed, erased = table.changed_since(snapshot.epoch())
    assert (changed.tolist(), sorted(erased.tolist())) == ([], ids.tolist())
    table.insert(ids, torch.ones(10, 1))
    table.clear()
    assert len(table) == 0
    assert repr(snapshot) == f"<HashTableSnapshot, 10 rows, epoch {table.epoch()}>"


@pytest.mark.parametrize("layout", ["plain", "recis"])
def test_saver_and_loader_take_it(tmp_path: Path, layout: str):
    table = HashTable("user", [2], torch.float32)
    ids = torch.arange(100) * 7919
    table.insert(ids, ids[:, None].expand(-1, 2).float())
    weightstore.Saver(path=tmp_path, hashtables={"user": table}, layout=layout).save()
    back, scripted = (HashTable("user", [2], torch.float32) for _ in range(2))
    weightstore.Loader(tmp_path, {"user": back}).load()
    weightstore.Loader(tmp_path, {"user": scripted.script_object}).load()
    for loaded in (back, scripted):
        assert torch.equal(loaded.lookup(ids, False)[1], table.lookup(ids, False)[1])
    sparse, dense = weightstore.split_sparse_dense_state_dict({"user": table, "w": torch.ones(1)})
    assert (list(sparse), list(dense)) == (["user"], ["w"])


def test_a_scripted_module_takes_the_script_object():
    @torch.jit.script
    def rows_of(table: torch.classes.store.HashTable, ids: torch.Tensor) -> int:
        table.lookup(ids, True)
        return table.size()

    table = HashTable("user", [2], torch.float32)
    assert rows_of(table.script_object, torch.arange(3)) == 3
    assert len(table) == 3


def test_what_is_refused():
    table = HashTable("user", [2], torch.float32)
    with pytest.raises(TypeError, match=r"ids is of type list; expected a torch\.Tensor"):
        table.lookup([1, 2], True)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="shape is of type int; expected a list"):
        HashTable("user", 2, torch.float32)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="'i8' means one type to files"):
        HashTable("user", [2], "i8")
    with pytest.raises(TypeError, match="script_object is of type"):
        HashTable.of(table.snapshot().script_object)
    with pytest.raises(errors.InvalidArgument) as caught:
        table.insert(torch.arange(3), torch.ones(2, 2))
    assert isinstance(caught.value, errors.CheckpointError)
    with pytest.raises(errors.InvalidArgument):
        HashTable("", [2], torch.float32)
    with pytest.raises(errors.StoreError):
        table.read_slot("none", torch.arange(2))

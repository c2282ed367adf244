"""What Saver, Loader and CheckpointReader are given: errors that are short and name what is wrong."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import weightstore
from support.torch_classes import torch

KINDS = ["save", "load"]


def table(name: str = "user", **options: Any) -> Any:
    made = torch.classes.store.HashTable(name, [1], torch.float32, **options)
    made.insert(torch.tensor([1]), torch.ones(1, 1))
    return made


def make(kind: str, path: Any, hashtables: Any = None, tensors: Any = None) -> Any:
    if kind == "save":
        return weightstore.Saver(path=path, hashtables=hashtables, tensors=tensors)
    return weightstore.Loader(path, hashtables, tensors)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"step": 3}, r"tensors\['step'\] is of type int; expected a torch.Tensor"),
        ({"none": None}, r"tensors\['none'\] is of type NoneType; expected a torch.Tensor"),
        ([("w", [1.0])], r"tensors\['w'\] is of type list; expected a torch.Tensor"),
        ([torch.ones(2)], r"item 0 of tensors is of type torch.Tensor; expected .* \(name, tensor\) pairs"),
        ({7: torch.ones(2)}, r"a name in tensors is of type int; expected a str"),
        (torch.ones(2), r"item 0 of tensors is of type torch.Tensor"),
        ("model", r"tensors is of type str"),
        (5, r"tensors is of type int"),
    ],
)
def test_what_is_no_tensor(tmp_path: Path, kind: str, wrong: Any, message: str) -> None:
    many = {f"layer.{i}": torch.randn(100) for i in range(200)}
    if isinstance(wrong, dict):
        wrong = {**many, **wrong}
    elif isinstance(wrong, list) and isinstance(wrong[0], tuple):
        wrong = [*many.items(), *wrong]
    with pytest.raises(TypeError, match=message) as caught:
        make(kind, tmp_path / "c", tensors=wrong)
    assert len(str(caught.value)) < 200
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            {"a": torch.ones(2)},
            r"hashtables\['a'\] is of type torch.Tensor; expected a weightstore.HashTable or a torch",
        ),
        ({"a": None}, r"hashtables\['a'\] is of type NoneType"),
        ({"a": table().snapshot()}, r"hashtables\['a'\] is of type torch.*ScriptObject"),
        ({3: table()}, r"a name in hashtables is of type int"),
        ([table()], r"hashtables is of type list; expected a dict"),
    ],
)
def test_what_is_no_table(tmp_path: Path, kind: str, wrong: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message) as caught:
        make(kind, tmp_path / "c", hashtables=wrong)
    assert len(str(caught.value)) < 200


def test_a_table_is_given_under_its_name(tmp_path: Path) -> None:
    message = r"hashtables\['item'\] is a table called 'user'.*pass it as hashtables\['user'\]"
    with pytest.raises(weightstore.InvalidArgument, match=message):
        weightstore.Saver(path=tmp_path / "c", hashtables={"item": table()}).save()
    assert not (tmp_path / "c").exists()
    weightstore.Saver(path=tmp_path / "c", hashtables={"user": table()}).save()
    target = torch.classes.store.HashTable("user", [1], torch.float32)
    with pytest.raises(weightstore.InvalidArgument, match=message):
        weightstore.Loader(tmp_path / "c", {"item": target})
    assert target.size() == 0
    # A table is loaded from one of another name by way of the load info.
    other = torch.classes.store.HashTable("item", [1], torch.float32)
    weightstore.Loader(
        tmp_path / "c", {"item": other}, filter_func=lambda info: {"item": {"user": info["item"]["item"]}}
    ).load()
    assert other.size() == 1


def test_torchscript_is_told_the_same(tmp_path: Path) -> None:
    saver = torch.classes.store.Saver(0, 1, 1, str(tmp_path))
    with pytest.raises(RuntimeError, match=r"hashtables\['item'\] is a table called 'user'"):
        saver.make_write_blocks({"item": table()}, {})
    with pytest.raises(RuntimeError, match=r"hashtables\['item'\] is a table called 'user'"):
        torch.classes.store.Loader(str(tmp_path), 1, {"item": table()}, {})


def test_a_coalesced_table_is_given_under_its_own_name(tmp_path: Path) -> None:
    family = table("family", children=["user", "item"])
    for key in ("user", "item"):
        with pytest.raises(weightstore.InvalidArgument, match="a table called 'family'"):
            weightstore.Saver(path=tmp_path, hashtables={key: family}).save()
    weightstore.Saver(path=tmp_path, hashtables={"family": family}).save()
    # In the checkpoint its children are tables.
    user = torch.classes.store.HashTable("user", [1], torch.float32)
    weightstore.Loader(tmp_path, {"user": user}, strict=False).load()
    assert user.ids().tolist() == [1]


OPENERS: dict[str, Callable[[Any], Any]] = {
    "Saver": lambda path: weightstore.Saver(path=path, tensors={"w": torch.ones(1)}).save(),
    "Loader": lambda path: weightstore.Loader(path, tensors={"w": torch.ones(1)}).load(),
    "CheckpointReader": weightstore.CheckpointReader,
}


@pytest.mark.parametrize("opener", OPENERS)
def test_a_nul_does_not_cut_a_path(tmp_path: Path, opener: str) -> None:
    weightstore.Saver(path=tmp_path / "a", tensors={"w": torch.zeros(1)}).save()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(ValueError, match="has a NUL in it") as caught:
        OPENERS[opener](f"{tmp_path}/a\0b")
    assert isinstance(caught.value, weightstore.CheckpointError)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_nul_does_not_cut_a_path_in_torchscript(tmp_path: Path) -> None:
    path = f"{tmp_path}/a\0b"
    for make in (
        lambda: torch.classes.store.Saver(0, 1, 1, path),
        lambda: torch.classes.store.Loader(path, 1, {}, {}),
        lambda: torch.classes.store.CheckpointReader(path),
    ):
        with pytest.raises(RuntimeError, match="has a NUL in it"):
            make()


@pytest.mark.parametrize("opener", OPENERS)
def test_a_path_that_is_not_utf8(tmp_path: Path, opener: str) -> None:
    path = os.fsencode(tmp_path) + b"/\xff"
    for given in (path, os.fsdecode(path)):
        with pytest.raises(weightstore.InvalidArgument, match=r"\\xff' is not UTF-8.*symbolic link"):
            OPENERS[opener](given)
    assert not os.path.exists(path)


def test_a_path_may_be_bytes(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path / "ü")
    weightstore.Saver(path=path, tensors={"w": torch.ones(1)}).save()
    w = torch.zeros(1)
    weightstore.Loader(path, tensors={"w": w}).load()
    assert w == 1
    assert weightstore.CheckpointReader(path).tensor_names() == ["w"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_name_that_is_not_utf8(tmp_path: Path, kind: str) -> None:
    with pytest.raises(weightstore.InvalidArgument, match=r"name 'a\\udc80' in tensors is not UTF-8"):
        make(kind, tmp_path / "c", tensors={"a\udc80": torch.ones(1)})


@pytest.mark.parametrize("inside", [True, False])
def test_save_async_in_and_out_of_inference_mode(tmp_path: Path, inside: bool) -> None:
    with torch.inference_mode(inside):
        made_here = torch.zeros(3)
    tensors = {"w": torch.zeros(3), "inference": made_here, "p": torch.nn.Parameter(torch.zeros(3))}
    saver = weightstore.Saver(path=tmp_path, tensors=tensors)
    for step, mode in enumerate([inside, not inside, inside]):
        with torch.inference_mode(mode):
            tensors["w"].fill_(step)
            saver.save_async().result(60)
        assert weightstore.CheckpointReader(tmp_path).read_tensor("w").eq(step).all()


def test_a_filter_that_returns_something_else_leaves_no_lock(tmp_path):
    saver = weightstore.Saver(path=tmp_path, tensors={"w": torch.ones(2)}, filter_func=lambda blocks: ["w"])
    for save in (saver.save, saver.save_async):
        with pytest.raises(TypeError, match="item 0 of what filter_func returned is of type str"):
            save()
    weightstore.Saver(path=tmp_path, tensors={"w": torch.ones(2)}).save()


@pytest.mark.parametrize(
    ("argument", "value", "text"),
    [
        ("shard_index", "x", "shard_index is of type str; expected an int"),
        ("shard_num", 1.5, "shard_num is of type float; expected an int"),
        ("parallel", "8", "parallel is of type str; expected an int"),
        ("path", 3, "the path of a checkpoint is of type int; expected a str or an os.PathLike"),
        ("filter_func", 3, "filter_func is of type int; expected something that can be called"),
        ("timeout", "soon", "timeout is of type str; expected a number of seconds"),
        ("timeout", None, "timeout is of type NoneType; expected a number of seconds"),
    ],
)
def test_arguments_of_a_wrong_type(tmp_path: Path, argument: str, value: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        weightstore.Saver(**{"path": tmp_path, argument: value})
    if argument in ("parallel", "filter_func"):
        with pytest.raises(TypeError, match=text):
            weightstore.Loader(tmp_path, **{argument: value})
    if argument == "path":
        with pytest.raises(TypeError, match=text):
            weightstore.Loader(value)
        with pytest.raises(TypeError, match=text):
            weightstore.CheckpointReader(value)


def test_a_filter_that_returns_nothing_is_told(tmp_path: Path) -> None:
    saver = weightstore.Saver(path=tmp_path, tensors={"w": torch.ones(2)}, filter_func=lambda blocks: None)
    with pytest.raises(
        TypeError, match="what filter_func returned is of type NoneType; expected the list of the blocks"
    ):
        saver.save()


def test_a_list_of_bare_tensors_is_told_that_it_has_no_names(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="a list of tensors alone has no names"):
        weightstore.Saver(path=tmp_path, tensors=[torch.ones(2)])


def test_reprs_say_where_and_how_much(tmp_path: Path) -> None:
    saver = weightstore.Saver(path=tmp_path / "c", hashtables={"user": table()}, tensors={"w": torch.ones(2)})
    assert repr(saver) == f"<Saver {str(tmp_path / 'c')!r}, shard 0 of 1, 1 tables, 1 tensors>"
    saver.save()
    loader = weightstore.Loader(tmp_path / "c", {"user": table()}, {"w": torch.ones(2)})
    assert repr(loader) == f"<Loader {str(tmp_path / 'c')!r}, 1 tables, 1 tensors>"
    reader = weightstore.CheckpointReader(tmp_path / "c")
    assert repr(reader) == f"<CheckpointReader {str(tmp_path / 'c')!r}, 3 tensors, 1 tables>"

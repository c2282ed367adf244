"""Tensors whose elements are in no memory of their own: refused by name, before anything is touched."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_map

import weightstore
import weightstore.torch
from support.torch_classes import torch
from weightstore._tensors import frameworks

pytestmark = pytest.mark.usefixtures("both_ways")


class Wrapper(torch.Tensor):
    """Values in another tensor, as DTensor and quantized tensors have them."""

    @staticmethod
    def __new__(cls, inner: Any) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def unwrap(value: Any) -> Any:
            return value.inner if isinstance(value, Wrapper) else value

        out = func(*tree_map(unwrap, args), **tree_map(unwrap, kwargs or {}))
        return Wrapper(out) if isinstance(out, torch.Tensor) else out


def freed(values: Any) -> Any:
    tensor = values.clone()
    tensor.untyped_storage().resize_(0)
    return tensor


def shrunk(values: Any) -> Any:
    tensor = values.clone()
    tensor.untyped_storage().resize_(4)
    return tensor


def fake(values: Any) -> Any:
    with FakeTensorMode():
        return torch.empty(values.shape, dtype=values.dtype)


def symbolic(values: Any) -> Any:
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    return FakeTensorMode(shape_env=ShapeEnv()).from_tensor(values)


KINDS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "wrapper": (Wrapper, r"has no memory of its own.*to_local\(\) or full_tensor\(\)"),
    "fake": (fake, r"has no memory of its own.*to_local\(\) or full_tensor\(\)"),
    "symbolic": (symbolic, r"has no memory of its own.*to_local\(\) or full_tensor\(\)"),
    "freed": (freed, r"lies in a storage of 0 bytes where its shape needs"),
    "shrunk": (shrunk, r"lies in a storage of 4 bytes where its shape needs"),
    "meta": (lambda values: values.to("meta"), r"is on the meta device.*to_empty\(\)"),
    "sparse": (lambda values: values.to_sparse(), r"has the layout (Sparse|torch\.sparse_coo);.*to_dense\(\)"),
    "csr": (lambda values: values.to_sparse_csr(), r"has the layout (SparseCsr|torch\.sparse_csr);.*to_dense\(\)"),
    "nested": (lambda values: torch.nested.nested_tensor([values]), r"is nested; pass the tensors"),
    "jagged": (
        lambda values: torch.nested.nested_tensor([values], layout=torch.jagged),
        r"is nested; pass the tensors",
    ),
}

HALVES = weightstore.FloatCastAdapter("F16")

pytestmark = [
    pytest.mark.parametrize("kind", KINDS),
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors"),
    pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta"),
]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    weightstore.Saver(path=tmp_path / "c", tensors={"v": torch.zeros(2), "w": torch.ones(2, 3)}).save()
    return tmp_path / "c"


@pytest.fixture
def table() -> Iterator[Any]:
    table = torch.classes.store.HashTable("user", [3], torch.float32)
    table.add_slot("moment", [3], torch.float32)
    table.insert(torch.tensor([1, 2]), torch.ones(2, 3))
    yield table
    # Whatever was tried, nothing changed.
    assert sorted(table.ids().tolist()) == [1, 2]
    assert torch.equal(table.lookup(torch.tensor([1, 2]), False)[1], torch.ones(2, 3))
    assert torch.equal(table.read_slot("moment", torch.tensor([1, 2])), torch.zeros(2, 3))


@pytest.mark.parametrize("layout", ["plain", "recis"])
@pytest.mark.parametrize("call", ["save", "save_async"])
def test_a_saver_names_it(tmp_path: Path, kind: str, layout: str, call: str) -> None:
    make, message = KINDS[kind]
    tensors = {"good": torch.ones(2), "strange": make(torch.full((2, 3), 5.0))}
    saver = weightstore.Saver(path=tmp_path / "c", tensors=tensors, layout=layout)
    with pytest.raises(weightstore.InvalidArgument, match=f"tensor 'strange': {message}") as caught:
        getattr(saver, call)()
    assert caught.value.tensor == "strange"
    assert not (tmp_path / "c").exists()


def test_a_loader_names_it_and_changes_nothing(checkpoint: Path, kind: str) -> None:
    make, message = KINDS[kind]
    v = torch.full((2,), 7.0)
    with pytest.raises(weightstore.InvalidArgument, match=f"tensor 'w': {message}") as caught:
        weightstore.Loader(checkpoint, tensors={"v": v, "w": make(torch.zeros(2, 3))})
    assert caught.value.tensor == "w"
    assert v.eq(7).all()


def test_a_target_that_loses_its_memory_before_the_load(checkpoint: Path, kind: str) -> None:
    if kind not in ("freed", "shrunk"):
        pytest.skip("the others never had any")
    w = torch.zeros(2, 3)
    loader = weightstore.Loader(checkpoint, tensors={"w": w}, strict=False)
    w.untyped_storage().resize_(0 if kind == "freed" else 4)
    with pytest.raises(weightstore.InvalidArgument, match=f"tensor 'w': {KINDS[kind][1]}"):
        loader.load()


def test_a_table_names_it(table: Any, kind: str) -> None:
    if kind == "jagged":
        pytest.skip("its __torch_function__ fails on methods of torch.classes before they are called")
    make, message = KINDS[kind]
    strange = make(torch.full((2, 3), 5.0))
    ids = torch.tensor([1, 2])
    embedding = rf"values of slot 'embedding': the tensor .*{message}"
    for call in (
        lambda: table.insert(ids, strange),
        lambda: table.lookup_out(ids, False, strange),
        lambda: table.lookup_out(torch.tensor([3, 4]), True, strange),
    ):
        with pytest.raises(RuntimeError, match=embedding):
            call()
    rows = table.lookup(ids, False)[0]
    for call in (
        lambda: table.write_slot("moment", ids, strange),
        lambda: table.write_slot_rows("moment", rows, strange),
    ):
        with pytest.raises(RuntimeError, match=rf"values of slot 'moment': the tensor .*{message}"):
            call()


def test_ids_are_named(table: Any, kind: str) -> None:
    if kind == "jagged":
        pytest.skip("its __torch_function__ fails on methods of torch.classes before they are called")
    make, message = KINDS[kind]
    base = torch.tensor([[3, 4, 5], [6, 7, 8]])
    strange = make(base) if kind in ("csr", "nested", "jagged") else make(base.reshape(-1))
    for call in (
        lambda: table.lookup(strange, True),
        lambda: table.insert(strange, torch.ones(6, 3)),
        lambda: table.erase(strange),
        lambda: table.contains(strange),
        lambda: table.read_slot("moment", strange),
        lambda: table.touch(strange, 1),
        lambda: table.coalesced_ids(0, strange),
    ):
        with pytest.raises(RuntimeError, match=f"ids: the tensor .*{message}"):
            call()
    with pytest.raises(RuntimeError, match=f"row numbers: the tensor .*{message}"):
        table.read_slot_rows("moment", strange)


@pytest.mark.parametrize("name", ["w.safetensors", "w.bpk"])
def test_a_save_verb_names_it(tmp_path: Path, kind: str, name: str) -> None:
    make, message = KINDS[kind]
    tensors = {"good": torch.ones(2), "strange": make(torch.full((2, 3), 5.0))}
    with pytest.raises(weightstore.InvalidArgument, match=f"tensor 'strange': {message}") as caught:
        weightstore.torch.save_file(tensors, tmp_path / name)
    assert caught.value.tensor == "strange"
    assert isinstance(caught.value, weightstore.NoDataError) == (kind == "meta")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("store", [weightstore.SafetensorsStore, weightstore.BurnpackStore])
def test_a_store_names_it(tmp_path: Path, kind: str, store: Any) -> None:
    make, message = KINDS[kind]
    tensors = {"good": torch.ones(2), "strange": make(torch.full((2, 3), 5.0))}
    for saver in (store.from_file(tmp_path / "w"), store.from_file(tmp_path / "w").with_to_adapter(HALVES)):
        with pytest.raises(weightstore.InvalidArgument, match=f"tensor 'strange': {message}") as caught:
            saver.collect_from(tensors)
        assert caught.value.tensor == "strange"
        assert list(tmp_path.iterdir()) == []


def test_a_file_does_not_load_into_it(tmp_path: Path, kind: str) -> None:
    make, message = KINDS[kind]
    weightstore.torch.save_file({"v": torch.zeros(2), "w": torch.ones(2, 3)}, tmp_path / "w.safetensors")
    v = torch.full((2,), 7.0)
    targets = {"v": v, "w": make(torch.zeros(2, 3))}
    file = weightstore.open(tmp_path / "w.safetensors")
    with pytest.raises(weightstore.InvalidArgument, match=f"tensor 'w': {message}") as caught:
        file.load_into(targets)
    assert caught.value.tensor == "w"
    assert v.eq(7).all()


def test_a_store_does_not_load_into_it(tmp_path: Path, kind: str) -> None:
    if kind == "meta":
        pytest.skip("such a tensor is given memory")
    make, message = KINDS[kind]
    weightstore.torch.save_file({"v": torch.zeros(2), "w": torch.ones(2, 3)}, tmp_path / "w.safetensors")
    v = torch.full((2,), 7.0)
    store = weightstore.SafetensorsStore.from_file(tmp_path / "w.safetensors")
    with pytest.raises(weightstore.ValidationError) as caught:
        store.apply_to({"v": v, "w": make(torch.zeros(2, 3))})
    [error] = caught.value.result.errors
    assert error.path == "w"
    assert re.search(message, error.message)
    assert v.eq(7).all()


def test_two_of_them_are_not_one(kind: str) -> None:
    """A pointer that is null says nothing about whether two tensors are tied."""
    make, _ = KINDS[kind]
    assert frameworks.identity(make(torch.ones(2, 3))) != frameworks.identity(make(torch.ones(2, 3)))

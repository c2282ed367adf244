"""Targets of weightstore.Loader that share memory, row-major or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import weightstore
from support.torch_classes import torch

W = torch.arange(12.0).reshape(3, 4)


def save(path: Path, **tensors: Any) -> Path:
    weightstore.Saver(path=path, tensors=tensors).save()
    return path


def load(path: Path, targets: dict[str, Any], *only: str) -> None:
    def chosen(info: dict[str, Any]) -> dict[str, Any]:
        return {name: info[name] for name in only} if only else info

    weightstore.Loader(path, tensors=targets, filter_func=chosen, strict=False).load()


@pytest.mark.parametrize(
    "view",
    [lambda w: w.t(), lambda w: w[:, 0], lambda w: w[::2, ::2], lambda w: w.as_strided((3, 3), (1, 1))],
    ids=["transposed", "column", "steps", "overlapping"],
)
def test_a_view_that_is_not_loaded_undoes_nothing(tmp_path: Path, view: Any) -> None:
    save(tmp_path, emb=W)
    for only in ((), ("emb",)):  # missing in the checkpoint, or taken out by the filter
        emb = torch.zeros(3, 4)
        load(tmp_path, {"emb": emb, "view": view(emb)}, *only)
        assert torch.equal(emb, W)
        load(tmp_path, {"view": view(emb), "emb": emb.zero_()}, *only)
        assert torch.equal(emb, W)


def test_a_view_alone(tmp_path: Path) -> None:
    save(tmp_path, emb=W, column=torch.tensor([-1.0, -2.0, -3.0]))
    emb = torch.zeros(3, 4)
    load(tmp_path, {"emb": emb, "column": emb[:, 1]}, "column")
    assert emb.tolist() == [[0, -1, 0, 0], [0, -2, 0, 0], [0, -3, 0, 0]]


@pytest.mark.parametrize("view", [lambda w: w, lambda w: w[1:], lambda w: w.t(), lambda w: w[:, 1:3], lambda w: w[::2]])
def test_equal_values_are_loaded_into_both(tmp_path: Path, view: Any) -> None:
    save(tmp_path, emb=W, view=view(W))
    emb = torch.zeros(3, 4)
    load(tmp_path, {"emb": emb, "view": view(emb)})
    assert torch.equal(emb, W)


@pytest.mark.parametrize("values", [W, W.bfloat16(), W.to(torch.complex64), torch.full((3, 4), float("nan"))])
def test_interleaved_views_share_nothing(tmp_path: Path, values: Any) -> None:
    save(tmp_path, left=values[:, :2], right=values[:, 2:])
    fused = torch.zeros_like(values)
    load(tmp_path, {"left": fused[:, :2], "right": fused[:, 2:]})
    assert fused.equal(values) or (values.isnan().all() and fused.isnan().all())


@pytest.mark.parametrize("view", [lambda w: w, lambda w: w[1:]])
def test_different_values_are_refused_before_anything_changes(tmp_path: Path, view: Any) -> None:
    save(tmp_path, emb=W, view=view(W) + 1, other=torch.ones(2))
    emb, other = torch.zeros(3, 4), torch.zeros(2)
    with pytest.raises(
        weightstore.InvalidArgument, match="shares memory with '(emb|view)'.*different values"
    ) as caught:
        load(tmp_path, {"emb": emb, "view": view(emb), "other": other})
    assert caught.value.tensor in ("emb", "view")
    assert emb.eq(0).all()
    assert other.eq(0).all()


@pytest.mark.parametrize("view", [lambda w: w.t(), lambda w: w[:, 1:3], lambda w: w[:, 0]])
def test_different_values_of_a_strided_view_are_refused(tmp_path: Path, view: Any) -> None:
    save(tmp_path, emb=W, view=view(W) + 1)
    emb = torch.zeros(3, 4)
    with pytest.raises(weightstore.InvalidArgument, match="shares memory with '(emb|view)'.*load only one of them"):
        load(tmp_path, {"emb": emb, "view": view(emb)})
    two = torch.zeros(3, 4)
    save(tmp_path / "two", a=W[:, :3], b=W[:, 1:] + 1)
    with pytest.raises(weightstore.InvalidArgument, match="shares memory with '[ab]'"):
        load(tmp_path / "two", {"a": two[:, :3], "b": two[:, 1:]})


def test_a_target_that_overlaps_itself(tmp_path: Path) -> None:
    memory = torch.zeros(5)
    target = memory.as_strided((3, 3), (1, 1))
    hankel = torch.arange(5.0).as_strided((3, 3), (1, 1)).clone()
    save(tmp_path / "right", w=hankel)
    load(tmp_path / "right", {"w": target})
    assert memory.tolist() == [0, 1, 2, 3, 4]
    save(tmp_path / "wrong", w=torch.arange(9.0).reshape(3, 3))
    with pytest.raises(weightstore.InvalidArgument, match="'w': shares memory with itself"):
        load(tmp_path / "wrong", {"w": target})

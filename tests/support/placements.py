"""Tensors that lie on ranks in every way, for tests that run on the ranks of `support.ranks`."""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

# How a matrix can lie on the ranks. With two placements, four ranks are a mesh of 2 x 2, and fewer use the last placement.
PLACEMENTS: dict[str, list[Any]] = {
    "row": [Shard(0)],
    "column": [Shard(1)],
    "both": [Shard(0), Shard(1)],
    "replicated": [Replicate()],
    "hybrid": [Replicate(), Shard(0)],
}


@functools.cache
def group(world: int) -> Any:
    """The process group of the first ranks. All ranks must ask for it."""
    return dist.new_group(list(range(world)))


@functools.cache
def mesh(world: int, placement: str) -> tuple[DeviceMesh, list[Any]]:
    """The mesh of the first ranks, and what lies how on it. All ranks must ask for it."""
    placements = PLACEMENTS[placement]
    shape = [2, 2] if len(placements) == 2 and world == 4 else [world]
    return DeviceMesh("cpu", torch.arange(world).reshape(shape)), placements[-len(shape) :]


def values(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Numbers that all differ as far as the type can tell them apart."""
    return torch.arange(torch.Size(shape).numel()).reshape(shape).to(dtype)


MATRICES = {
    "even": (8, 12),
    "uneven": (7, 5),
    "short": (3, 9),  # some ranks of four have nothing
    "one": (1, 1),
    "empty": (0, 4),
    "deep": (5, 6, 7),
}


def make_state(world: int, placement: str) -> dict[str, Any]:
    where, placements = mesh(world, placement)
    state: dict[str, Any] = {}
    for name, size in MATRICES.items():
        state[name] = distribute_tensor(values(size), where, placements, src_data_rank=None)
    state["bfloat"] = distribute_tensor(values((16, 4), torch.bfloat16), where, placements, src_data_rank=None)
    state["plain"] = values((3, 3), torch.int64)
    state["scalar"] = torch.tensor(3.5, dtype=torch.float64)
    state["nested"] = {"step": 7, "names": ["a", "b"], "rate": 0.25, "inner": {"x": values((2, 2))}}
    return state


def blank(state: Any) -> Any:
    if isinstance(state, DTensor):
        return DTensor.from_local(
            blank(state.to_local()),
            state.device_mesh,
            state.placements,
            run_check=False,
            shape=state.shape,
            stride=state.stride(),
        )
    if isinstance(state, torch.Tensor):
        return torch.full_like(as_bytes(state), 99).view(state.dtype)
    if isinstance(state, dict):
        return {key: blank(value) for key, value in state.items()}
    if isinstance(state, list):
        return [blank(value) for value in state]
    return type(state)() if not isinstance(state, str) else ""


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """torch neither fills nor compares pairs of four-bit floats."""
    return tensor.view(torch.uint8) if tensor.dtype == torch.float4_e2m1fn_x2 else tensor


def assert_same(found: Any, expected: Any, path: str = "") -> None:
    if isinstance(expected, DTensor):
        found, expected = found.to_local(), expected.to_local()
    if isinstance(expected, torch.Tensor):
        assert found.dtype == expected.dtype, path
        assert torch.equal(as_bytes(found), as_bytes(expected)), path
    elif isinstance(expected, dict):
        assert found.keys() == expected.keys(), path
        for key, value in expected.items():
            assert_same(found[key], value, f"{path}.{key}")
    else:
        assert found == expected, path

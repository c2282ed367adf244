"""Matrices sharded by columns, which the ranks of a machine write together: what is written, and what happens when one stops."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

import weightstore
from support.ranks import RankError, Ranks
from weightstore import _core
from weightstore._dcp import exchange, sharing
from weightstore.dcp import StorageWriter

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")

ROWS, COLUMNS = 3000, 2050  # 25 MB: more blocks than two ranks have slots


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    made = Ranks(2, timeout=30)
    yield made
    made.close()


def whole(offset: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return (torch.arange(ROWS * COLUMNS, dtype=torch.float32).reshape(ROWS, COLUMNS) + offset).to(dtype)


def columns(values: torch.Tensor, transposed: bool = False) -> DTensor:
    """The columns of this rank; with `transposed` they lie column by column in its memory."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    local = values.chunk(dist.get_world_size(), 1)[dist.get_rank()]
    local = local.t().contiguous().t() if transposed else local.contiguous()
    return DTensor.from_local(local, mesh, [Shard(1)], run_check=False, shape=values.shape, stride=values.stride())


def save(path: str, options: dict[str, Any]) -> None:
    state = {
        "a": columns(whole(0)),
        "rows": torch.arange(9.0),
        "b": columns(whole(1), transposed=True),
        "c": columns(whole(2, torch.bfloat16)),
    }
    dcp.save(state, storage_writer=StorageWriter(path, layout="whole", max_shard_size="30MB", **options))


def save_and_stop(path: str, victim: int, way: str) -> None:
    def stop(done: int, total: int, name: str) -> bool:
        if dist.get_rank() != victim or done < total // 3:
            return True
        if way == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if way == "stuck":
            time.sleep(4)
        return way != "cancelled"

    save(path, {"progress": stop, "timeout": 2.0 if way == "stuck" else 60.0})


@pytest.mark.parametrize("options", [{}, {"durable": False, "threads": 1}, {"exchange": False}, {"checksums": False}])
def test_what_is_written(tmp_path: Path, ranks: Ranks, options: dict[str, Any]) -> None:
    path = tmp_path / "c"
    ranks.run(save, str(path), options)
    with weightstore.open(path, verify="full" if options.get("checksums", True) else "off") as file:
        assert torch.equal(file["a"].torch(), whole(0))
        assert torch.equal(file["b"].torch(), whole(1))
        assert torch.equal(file["c"].torch(), whole(2, torch.bfloat16))
    assert len(list(path.glob("*.safetensors"))) == 3


@pytest.mark.parametrize(
    ("way", "message"),
    [
        ("killed", "the process of rank 1 has ended during the save|Connection closed|Connection reset"),
        ("cancelled", "writing was cancelled"),
    ],
)
def test_a_rank_that_stops_does_not_leave_others_waiting(tmp_path: Path, way: str, message: str) -> None:
    ranks = Ranks(2, timeout=10)
    try:
        path = tmp_path / "c"
        ranks.run(save, str(path), {})
        begin = time.monotonic()
        ranks.start(save_and_stop, str(path), 1, way)
        with pytest.raises(RankError, match=message):
            ranks.result(0)
        assert time.monotonic() - begin < 50  # and not the minute of the timeout
    finally:
        ranks.close()
    with weightstore.open(path, verify="full") as file:
        assert torch.equal(file["a"].torch(), whole(0))
    dcp.save({"a": torch.ones(3)}, storage_writer=StorageWriter(path, layout="whole"), no_dist=True)
    assert [each.name for each in tmp_path.iterdir()] == ["c"]


# ---- the plan --------------------------------------------------------------------------------------------------------


def plan(
    places: list[sharing.Place], boxes: list[tuple[int, tuple[int, ...], tuple[int, ...]]]
) -> exchange.ExchangePlan:
    made = exchange.ExchangePlan(places)
    for rank, begin, size in boxes:
        made.add(rank, "w", (1000, 64), begin, size, 4)
    made.finish({"w": (100, (1000, 64), 4)})
    return made


def place(host: str, process: int, memory: int = 3) -> sharing.Place:
    return sharing.Place(host, 1, "ext4", process, 1, 0, memory)


def test_ranks_of_a_machine_write_their_rows_together() -> None:
    """Four ranks on two machines: each machine has half of the rows, each rank half of the columns."""
    places = [place("a", 1), place("a", 2), place("b", 1), place("b", 2)]
    boxes = [(rank, (500 * (rank // 2), 32 * (rank % 2)), (500, 32)) for rank in range(4)]
    made = plan(places, boxes)
    for rank in range(4):
        its, ranges = made.of(rank)
        assert its is not None
        assert [member for member, _ in its.members] == ([0, 1] if rank < 2 else [2, 3])
        assert its.blocks == 1
        begin = 500 * 64 * 4 * (rank // 2)
        assert ranges == {"w": (0, begin, begin + 500 * 64 * 4)}


@pytest.mark.parametrize(
    ("places", "boxes"),
    [
        ([place("a", 1), place("b", 2)], [(0, (0, 0), (1000, 32)), (1, (0, 32), (1000, 32))]),  # two machines
        ([place("a", 1), place("a", 2, -1)], [(0, (0, 0), (1000, 32)), (1, (0, 32), (1000, 32))]),  # no memory
        ([place("a", 1), place("a", 2)], [(0, (0, 0), (500, 64)), (1, (500, 0), (500, 64))]),  # rows
        ([place("a", 1)] * 3, [(0, (0, 0), (1000, 16)), (1, (0, 32), (1000, 16))]),  # not all of the columns
    ],
)
def test_what_is_not_written_together(places: Any, boxes: Any) -> None:
    assert plan(places, boxes).of(0) == (None, {})


def test_a_box_that_is_one_run_is_written_by_its_rank() -> None:
    """Three rows on a mesh of 2 x 2: the last row is one run for each of two ranks, and in no exchange."""
    made = exchange.ExchangePlan([place("a", rank + 1) for rank in range(4)])
    boxes = [((0, 0), (2, 5)), ((0, 5), (2, 4)), ((2, 0), (1, 5)), ((2, 5), (1, 4))]
    for rank, (begin, size) in enumerate(boxes):
        made.add(rank, "short", (3, 9), begin, size, 4)
    made.finish({"short": (0, (3, 9), 4)})
    assert made.of(0)[1] == {"short": (0, 0, 72)}
    assert [made.has(rank, "short", begin) for rank, (begin, _) in enumerate(boxes)] == [True, True, False, False]


def test_memory_of_an_exchange_is_bounded() -> None:
    for members in (2, 4, 8, 64):
        assert _core.BoxExchange.memory_bytes(members, 20_000) <= members * (9 << 20) + (1 << 20)

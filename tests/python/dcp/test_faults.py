"""Ranks that die, are slow, or have a full disk, and directories that are seen late: with real processes."""

from __future__ import annotations

import os
import resource
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

from support.ranks import RankError, Ranks
from weightstore import _core
from weightstore.dcp import StorageReader, StorageWriter

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")

ROWS = 4096
# Where a rank dies; and whether the save is committed by then.
STEPS = [
    (1, "local plan", False),
    (0, "global plan", False),
    (1, "before writing", False),
    (1, "after writing", False),
    (0, "after writing", False),
    (0, "finish", False),
    (0, "before the exchange", False),
    (0, "after the exchange", True),
    (1, "after the exchange", True),
]


def state(value: float) -> dict[str, Any]:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    local = torch.full((ROWS // dist.get_world_size(), 256), value)
    tensor = DTensor.from_local(
        local, mesh, [Shard(0)], run_check=False, shape=torch.Size((ROWS, 256)), stride=(256, 1)
    )
    return {"w": tensor, "step": int(value)}


def loaded(path: Path) -> float:
    """The value of the checkpoint, which must be complete."""
    target = {"w": torch.zeros(ROWS, 256), "step": 0}
    dcp.load(target, storage_reader=StorageReader(path, verify="lazy"), no_dist=True)
    (value,) = target["w"].unique().tolist()
    assert target["step"] == value
    return float(value)


# ---- on the ranks ----------------------------------------------------------------------------------------------------


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Dying(StorageWriter):
    """Kills its process at a step."""

    step = ""

    def prepare_local_plan(self, plan: Any) -> Any:
        if self.step == "local plan":
            die()
        return super().prepare_local_plan(plan)

    def prepare_global_plan(self, plans: Any) -> Any:
        result = super().prepare_global_plan(plans)
        if self.step == "global plan":
            die()
        return result

    def write_data(self, plan: Any, planner: Any) -> Any:
        if self.step == "before writing":
            die()
        result = super().write_data(plan, planner)
        if self.step == "after writing":
            die()
        return result

    def finish(self, metadata: Any, results: Any) -> None:
        if self.step == "finish":
            die()
        exchange = _core.exchange

        def exchanged(*names: str) -> bool:
            if self.step == "before the exchange":
                die()
            result = exchange(*names)
            if self.step == "after the exchange":
                die()
            return result

        _core.exchange = exchanged  # type: ignore[assignment]
        try:
            super().finish(metadata, results)
        finally:
            _core.exchange = exchange


def save(path: str, layout: str, value: float, victim: int = -1, step: str = "") -> None:
    writer = Dying(path, layout=layout, timeout=5)
    if dist.get_rank() == victim:
        writer.step = step
    dcp.save(state(value), storage_writer=writer)
    if dist.get_rank() == victim:
        die()


def save_slowly(path: str, layout: str) -> None:
    writer = StorageWriter(path, layout=layout)
    if dist.get_rank() == 1:
        write, writer.write_data = writer.write_data, lambda *given: (time.sleep(1), write(*given))[1]  # type: ignore[method-assign]
    dcp.save(state(2.0), storage_writer=writer)


def save_on_a_full_disk(path: str, layout: str) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    if dist.get_rank() == 1:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    try:
        dcp.save(state(2.0), storage_writer=StorageWriter(path, layout=layout))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def save_where_files_come_late(path: str, seconds: float, timeout: float) -> None:
    exists, begin = os.path.exists, time.monotonic()
    if dist.get_rank() == 1:
        os.path.exists = lambda name: (
            "weightstore-staging" not in str(name)
            or (  # type: ignore[assignment]
                time.monotonic() > begin + seconds and exists(name)
            )
        )
    try:
        dcp.save(state(2.0), storage_writer=StorageWriter(path, layout="whole", timeout=timeout))
    finally:
        os.path.exists = exists


# ---- tests -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def ranks() -> Iterator[Ranks]:
    made = Ranks(2, timeout=10)
    yield made
    made.close()


@pytest.fixture(scope="module")
def living() -> Iterator[Ranks]:
    made = Ranks(2, timeout=20)
    yield made
    made.close()


@pytest.mark.parametrize(("victim", "step", "committed"), STEPS)
def test_a_rank_dies(tmp_path: Path, ranks: Ranks, victim: int, step: str, committed: bool) -> None:
    path = tmp_path / "c"
    layout = "whole" if victim == 0 else "per-rank"
    ranks.run(save, str(path), layout, 1.0)
    (path / "config.json").write_text("mine")
    begin = time.monotonic()
    ranks.start(save, str(path), layout, 2.0, victim, step)
    with pytest.raises(EOFError):
        ranks.result(victim)
    if not (committed and victim == 1):  # rank 1 dies when the save is over
        with pytest.raises(RankError, match="rank 0|rank 1"):
            ranks.result(1 - victim)
    assert time.monotonic() - begin < 30
    assert loaded(path) == (2.0 if committed else 1.0)
    assert (path / "config.json").read_text() == "mine"
    # The job starts again, and saves.
    dcp.save({"w": torch.full((ROWS, 256), 3.0), "step": 3}, storage_writer=StorageWriter(path), no_dist=True)
    assert loaded(path) == 3.0
    assert (path / "config.json").read_text() == "mine"
    assert [each.name for each in tmp_path.iterdir()] == ["c"]


@pytest.mark.parametrize("layout", ["per-rank", "whole"])
def test_a_slow_rank(tmp_path: Path, living: Ranks, layout: str) -> None:
    living.run(save_slowly, str(tmp_path / "c"), layout)
    assert loaded(tmp_path / "c") == 2.0


@pytest.mark.parametrize("layout", ["per-rank", "whole"])
def test_a_full_disk_on_one_rank(tmp_path: Path, living: Ranks, layout: str) -> None:
    path = tmp_path / "c"
    living.run(save, str(path), layout, 1.0)
    living.start(save_on_a_full_disk, str(path), layout)
    for rank in (0, 1):
        with pytest.raises(RankError, match=r"cannot (write|reserve)") as error:
            living.result(rank)
        assert "weightstore-staging" in str(error.value)
    assert loaded(path) == 1.0
    living.run(save, str(path), layout, 3.0)
    assert loaded(path) == 3.0
    assert [each.name for each in tmp_path.iterdir()] == ["c"]


def test_files_that_come_late(tmp_path: Path, living: Ranks) -> None:
    path = tmp_path / "c"
    living.run(save_where_files_come_late, str(path), 0.5, 30.0)
    assert loaded(path) == 2.0
    living.start(save_where_files_come_late, str(path), 60.0, 1.0)
    for rank in (0, 1):
        with pytest.raises(RankError, match="was not visible here within 1 seconds"):
            living.result(rank)
    assert loaded(path) == 2.0

"""CheckpointManager and Saver.from_process_group on the ranks of a process group."""

from __future__ import annotations

import itertools
import os
import warnings
from pathlib import Path
from typing import Any

import pytest

import weightstore
from support.torch_classes import torch

if not (torch.distributed.is_available() and torch.distributed.is_gloo_available()):
    pytest.skip("this torch has no gloo", allow_module_level=True)

import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from support.placements import group, mesh
from support.ranks import RankError, pool
from weightstore import CheckpointManager, PerRank, Saver
from weightstore._checkpoints.spread import _rows_of

WORLDS = [1, 2, 4]


def member(world: int) -> Any:
    """The group of the first ranks; None on the others. All ranks make their mesh, too."""
    found, _ = group(world), mesh(world, "row")
    return found if dist.get_rank() < world else None


def network(world: int, seed: int) -> tuple[Any, Any]:
    """A model that is sharded over the first ranks, and its optimizer, after two steps."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.ReLU(), torch.nn.Linear(6, 4))
    if world > 1:
        fully_shard(model, mesh=mesh(world, "row")[0])
    return model, torch.optim.AdamW(model.parameters(), lr=0.1)


def train(model: Any, optimizer: Any, steps: int) -> None:
    for step in range(steps):
        optimizer.zero_grad()
        torch.manual_seed(step)
        model(torch.randn(4, 8)).square().sum().backward()
        optimizer.step()


def whole(tensor: Any) -> Any:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def numbers(model: Any, optimizer: Any) -> list[Any]:
    state = optimizer.state_dict()["state"]
    tensors = [*model.state_dict().values(), *(value for each in state.values() for value in each.values())]
    return [whole(tensor).tolist() for tensor in tensors]


# ---- on the ranks ----------------------------------------------------------------------------------------------------


def save_run(path: str, world: int, async_save: bool) -> list[Any]:
    process_group = member(world)
    if process_group is None:
        return []
    rank = dist.get_rank()
    model, optimizer = network(world, 0)
    train(model, optimizer, 2)
    table = weightstore.HashTable("user", [2], torch.float32, 65536 * rank // world, 65536 * (rank + 1) // world)
    ids = torch.arange(rank * 65536 // world, rank * 65536 // world + 5)
    table.insert(ids, ids[:, None].expand(-1, 2).float())
    with CheckpointManager(path, process_group=process_group, async_save=async_save, max_to_keep=2) as manager:
        torch.manual_seed(100 + rank)
        assert manager.restore({"model": model}) is None
        for step in range(4):
            loader = PerRank({"position": 10 * rank + step, "order": torch.full((3,), rank)})
            state = {
                "model": model,
                "optimizer": optimizer,
                "rng": True,
                "loader": loader,
                "user": table,
                "epoch": step,
            }
            assert manager.save(step, state, {"loss": 1.0})
        manager.wait()
        assert manager.steps() == [2, 3]
    return numbers(model, optimizer)


def restore_run(path: str, world: int) -> Any:
    process_group = member(world)
    if process_group is None:
        return None
    rank = dist.get_rank()
    model, optimizer = network(world, 7)
    table = weightstore.HashTable("user", [2], torch.float32, 65536 * rank // world, 65536 * (rank + 1) // world)
    torch.manual_seed(55)
    into = {"model": model, "optimizer": optimizer, "rng": True, "user": table}
    with (
        CheckpointManager(path, process_group=process_group) as manager,
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        found = manager.restore(into)
    assert found is not None
    assert [type(value) is DTensor for value in optimizer.state_dict()["state"][0].values()].count(True) == 2 * (
        world > 1
    )
    texts = [str(each.message) for each in caught]
    own = [each["position"] for each in found.of_ranks("loader")]
    mine = found["loader"]["order"].tolist() if found.world_size == world else None
    ids = sorted(table.ids().tolist())
    drawn = torch.initial_seed()
    rng = torch.rand(1).item()
    result = numbers(model, optimizer)
    train(model, optimizer, 1)
    return found.step, found["epoch"], result, own, mine, ids, rng, texts, drawn


def differing(path: str, kind: str) -> None:
    rank = dist.get_rank()
    state: dict[str, Any] = {"w": torch.ones(4), "config": {"lr": [0.5, 1]}}
    if kind == "value" and rank == 2:
        state["config"]["lr"][0] = 0.25
    if kind == "shape" and rank == 1:
        state["w"] = torch.ones(5)
    if kind == "unsaveable" and rank == 3:
        state["bad"] = object()
    CheckpointManager(path, async_save=False).save(1, state)


def failing(path: str, async_save: bool) -> None:
    """Rank 2 cannot write."""
    manager = CheckpointManager(path, async_save=async_save, timeout=20)
    from weightstore._training.saving import StepSave

    write = StepSave._write
    if dist.get_rank() == 2:

        def fail(self: Any) -> None:
            self._save = None
            raise OSError(28, "No space left on device")

        StepSave._write = fail
    try:
        manager.save(1, {"w": torch.ones(4)})
        manager.wait()
    finally:
        StepSave._write = write
        assert manager.steps() == []
        manager.save(2, {"w": torch.ones(4)})
        manager.close()
        assert manager.steps() == [2]


def save_together(path: str, way: str) -> Any:
    rank = dist.get_rank()
    tensors = {f"w{number}": torch.full((256, 1024), float(number)) for number in range(8)}
    tensors["large"] = torch.arange(float(6 << 20)).view(-1, 1024)
    tensors["split"] = distribute_tensor(torch.arange(64.0).view(8, 8), mesh(4, "row")[0], [Shard(0)])
    saver = Saver.from_process_group(path, 1, None, tensors)
    for _ in range(2):
        if way == "async":
            future = saver.save_async()
            for tensor in tensors.values():
                whole_or_local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
                whole_or_local.neg_()
            future.result()
            for tensor in tensors.values():
                (tensor.to_local() if isinstance(tensor, DTensor) else tensor).neg_()
        else:
            saver.save()
        assert os.path.exists(os.path.join(path, "model.safetensors.index.json"))
        dist.barrier()
    sizes = [os.path.getsize(os.path.join(path, name)) for name in os.listdir(path) if f"-s{rank:05}-" in name]
    return sum(sizes)


def save_different(path: str) -> None:
    Saver.from_process_group(path, tensors={"w": torch.ones(3 + dist.get_rank() // 3)}).save()


def ask_to_stop(path: str) -> list[bool]:
    manager = CheckpointManager(path, sigterm=True, save_every=5)
    first = manager.should_save(3)
    if dist.get_rank() == 1:
        os.kill(os.getpid(), 15)
    dist.barrier()
    return [first, manager.should_save(3), manager.preempted, manager.close() is None]


def skip_on_one_rank(path: str) -> list[bool]:
    """Rank 1 is slow."""
    import threading

    from weightstore._training.saving import StepSave

    gate, commit = threading.Event(), StepSave._write
    if dist.get_rank() == 1:

        def slow(self: Any) -> None:
            gate.wait(30)
            commit(self)

        StepSave._write = slow
    manager = CheckpointManager(path, on_busy="skip")
    try:
        saved = [manager.save(1, {"x": 1}), manager.save(2, {"x": 1})]
        dist.barrier()
        gate.set()
        manager.wait()
        return [*saved, manager.save(3, {"x": 1}), manager.close() is None]
    finally:
        StepSave._write = commit


# ---- tests -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("saved_on", WORLDS)
@pytest.mark.parametrize("async_save", [True, False], ids=["async", "sync"])
def test_any_number_of_ranks_goes_on(tmp_path: Path, saved_on: int, async_save: bool) -> None:
    expected = pool().run(save_run, str(tmp_path), saved_on, async_save)[0]
    for world in WORLDS:
        results = [result for result in pool().run(restore_run, str(tmp_path), world) if result is not None]
        assert len(results) == world
        every_id = [
            id for rank in range(saved_on) for id in range(rank * 65536 // saved_on, rank * 65536 // saved_on + 5)
        ]
        assert sorted(id for result in results for id in result[5]) == every_id
        for rank, (step, epoch, values, own, mine, _, _, texts, seed) in enumerate(results):
            assert (step, epoch) == (3, 3)
            assert values == expected
            assert own == [10 * each + 3 for each in range(saved_on)]
            if world == saved_on:
                assert mine == [rank] * 3
                assert seed == 100 + rank
            else:
                assert f"{saved_on} ranks saved it, and {world} restore it" in texts[0]
                assert seed == 55


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("value", r"ranks 0 and 2 have different states at 'config\.lr\.0': 0\.5 and 0\.25\. Save what differs"),
        ("shape", r"ranks 0 and 1 have different tensors: rank 0 has 'w' float32 \[4\]; rank 1 has 'w' float32 \[5\]"),
        ("unsaveable", r"rank 3 failed: 'bad' is a object, which a state cannot hold"),
    ],
)
def test_ranks_that_differ_are_refused_on_all_of_them(tmp_path: Path, kind: str, text: str) -> None:
    pool().start(differing, str(tmp_path / "run"), kind)
    for rank in range(4):
        with pytest.raises(RankError, match=text):
            pool().result(rank)
    assert (
        [name for name in os.listdir(tmp_path / "run") if "step" in name] == [] if (tmp_path / "run").exists() else True
    )


@pytest.mark.parametrize("async_save", [True, False], ids=["async", "sync"])
def test_what_one_rank_cannot_do_is_an_error_on_all(tmp_path: Path, async_save: bool) -> None:
    pool().start(failing, str(tmp_path), async_save)
    for rank in range(4):
        with pytest.raises(RankError, match=r"rank 2 failed: OSError: \[Errno 28\] No space left on device"):
            pool().result(rank)


@pytest.mark.parametrize("way", ["sync", "async"])
def test_a_saver_of_a_process_group_spreads_tensors_by_bytes(tmp_path: Path, way: str) -> None:
    sizes = pool().run(save_together, str(tmp_path), way)
    assert max(sizes) < 1.2 * min(sizes)
    with weightstore.open(tmp_path) as file:
        assert file["large"].numpy().ravel().tolist() == torch.arange(float(6 << 20)).tolist()
        assert [file[f"w{number}"][0, 0].numpy().item() for number in range(8)] == list(range(8))
        assert file["split"].numpy().ravel().tolist() == torch.arange(64.0).tolist()
    weightstore.CheckpointReader(tmp_path).verify()


def test_a_saver_of_a_process_group_compares_before_it_writes(tmp_path: Path) -> None:
    pool().start(save_different, str(tmp_path / "there"))
    for rank in range(4):
        with pytest.raises(
            RankError, match=r"ranks 0 and 3 have different tensors: .*\[3\]; rank 3 has 'w' float32 \[4\]"
        ):
            pool().result(rank)
    assert not (tmp_path / "there").exists()
    with pytest.raises(TypeError, match="takes no attempt"):
        Saver.from_process_group(tmp_path, attempt=1)


def test_sigterm_of_one_rank_stops_all(tmp_path: Path) -> None:
    assert pool().run(ask_to_stop, str(tmp_path)) == [[False, True, True, True]] * 4


def test_all_ranks_skip_together(tmp_path: Path) -> None:
    assert pool().run(skip_on_one_rank, str(tmp_path)) == [[True, False, True, True]] * 4
    assert CheckpointManager(tmp_path).steps() == [1, 3]


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_the_ranks_have_all_rows_once_and_equally_many_bytes(count: int) -> None:
    sizes = {f"t{number}": ((number % 7 + 1) << 20, 64) for number in range(50)} | {
        "large": (1 << 30, 1 << 20),
        "": (0, 1),
    }
    shares = [_rows_of(rank, sizes, [0] * count) for rank in range(count)]
    loads = []
    for name, (_, rows) in sizes.items():
        pieces = sorted(share[name] for share in shares if name in share)
        assert pieces[0][0] == 0
        assert pieces[-1][1] == rows
        assert all(a[1] == b[0] for a, b in itertools.pairwise(pieces))
    for share in shares:
        loads.append(sum(sizes[name][0] * (end - begin) // sizes[name][1] for name, (begin, end) in share.items()))
    assert max(loads) - min(loads) <= 8 << 20

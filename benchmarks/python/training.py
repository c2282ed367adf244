"""Saves and restores of a training run, beside torch.save, torch_checkpointing and what the machine can do: one table.

All run in turns in one process; a ratio is the median of those of the rounds.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __package__ in (None, ""):  # run as a file
    sys.path[0] = str(Path(__file__).resolve().parents[2])

import torch

from weightstore import CheckpointManager

LAYER = 64 << 20  # bytes of a matrix of the model


class Run:
    """A model with Adam, so that the state is three times the model."""

    def __init__(self, model_bytes: int) -> None:
        side = 4096
        rows = LAYER // 4 // side
        self.model = torch.nn.ParameterList(torch.randn(rows, side) for _ in range(max(1, model_bytes // LAYER)))
        self.optimizer = torch.optim.Adam(self.model.parameters())
        for parameter in self.model:
            parameter.grad = torch.zeros_like(parameter)
        self.optimizer.step()
        for parameter in self.model:
            parameter.grad = None

    def state(self) -> dict[str, Any]:
        return {"model": self.model, "optimizer": self.optimizer}

    def dicts(self) -> dict[str, Any]:
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def tensors(self) -> list[torch.Tensor]:
        moments = [value for each in self.optimizer.state.values() for value in each.values()]
        return [*(parameter.detach() for parameter in self.model), *moments]


def seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def saves(run: Run, folder: Path, rounds: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {}
    manager = CheckpointManager(folder / "ours", max_to_keep=1, async_save=False)
    peer = peer_saver(sync_save=True)

    def ours(number: int) -> None:
        manager.save(number, run.state())

    def torch_save(number: int) -> None:
        torch.save(run.dicts(), folder / "torch.pt")
        sync(folder / "torch.pt")

    def torch_checkpointing(number: int) -> None:
        shutil.rmtree(folder / "peer", ignore_errors=True)
        peer.save(str(folder / "peer"), run.dicts())

    contestants = {"weightstore": ours, "torch.save + fsync": torch_save}
    if peer is not None:
        contestants["torch_checkpointing"] = torch_checkpointing
    for number in range(rounds):
        for name, work in contestants.items():
            os.sync()
            times.setdefault(name, []).append(seconds(lambda work=work, number=number: work(number)))
    if peer is not None:
        peer.close()
    return times


def stalls(run: Run, folder: Path, rounds: int) -> dict[str, list[float]]:
    """The first save of a manager, and those after it, until they return."""
    times: dict[str, list[float]] = {}

    def note(name: str, work: Callable[[], object]) -> None:
        times.setdefault(name, []).append(seconds(work))

    manager = CheckpointManager(folder / "async", max_to_keep=1)
    manager.save(0, run.state())
    manager.wait()
    touched = [torch.empty_like(tensor).copy_(tensor) for tensor in run.tensors()]

    def memcpy(targets: list[torch.Tensor]) -> None:
        for target, tensor in zip(targets, run.tensors(), strict=True):
            target.copy_(tensor)

    for number in range(1, rounds + 1):
        note("memcpy, touched", lambda: memcpy(touched))
        note("weightstore, later", lambda number=number: manager.save(number, run.state()))
        manager.wait()
        note("memcpy, fresh", lambda: memcpy([torch.empty_like(tensor) for tensor in run.tensors()]))
        with CheckpointManager(folder / "first", max_to_keep=1) as first:
            note("weightstore, first", lambda number=number, first=first: first.save(number, run.state()))
    manager.close()
    peer = peer_saver(sync_save=False)
    if peer is not None:
        for _ in range(2 * rounds):
            shutil.rmtree(folder / "peer", ignore_errors=True)
            futures: list[Any] = []
            note(
                "torch_checkpointing",
                lambda futures=futures: futures.append(peer.save(str(folder / "peer"), run.dicts())),
            )
            futures[0].result()
        del times["torch_checkpointing"][:rounds]
        peer.close()
    return times


def restores(run: Run, folder: Path, rounds: int) -> tuple[dict[str, list[float]], float]:
    """Into memory that is there; and how far the memory of the process rises meanwhile."""
    with CheckpointManager(folder / "ours", max_to_keep=1, async_save=False) as manager:
        manager.save(1000, run.state())
    torch.save(run.dicts(), folder / "torch.pt")
    files = sorted((folder / "ours" / "step-00001000").glob("*.safetensors"))
    memory = [torch.empty(file.stat().st_size, dtype=torch.uint8).fill_(0) for file in files]
    times: dict[str, list[float]] = {}

    def torch_load() -> None:
        state = torch.load(folder / "torch.pt", mmap=True, weights_only=True)
        run.model.load_state_dict(state["model"])
        for values in state["optimizer"]["state"].values():
            for name in values:
                values[name] = values[name].clone()  # torch leaves views of the file
        run.optimizer.load_state_dict(state["optimizer"])

    def read_all() -> None:
        for file, target in zip(files, memory, strict=True):
            view = (ctypes.c_char * target.nbytes).from_address(target.data_ptr())
            with open(file, "rb", buffering=0) as opened:
                done = 0
                while done < target.nbytes:
                    done += opened.readinto(memoryview(view).cast("B")[done:])

    rises = []
    for _ in range(rounds):
        before = peak(reset=True)
        times.setdefault("weightstore", []).append(seconds(lambda: manager.restore(run.state(), verify="off")))
        rises.append(peak() - before)
        times.setdefault("weightstore, checksums", []).append(seconds(lambda: manager.restore(run.state())))
        times.setdefault("torch.load and copies", []).append(seconds(torch_load))
        times.setdefault("read", []).append(seconds(read_all))
    return times, max(rises)


def peak(reset: bool = False) -> int:
    """The highest memory of the process, in bytes; since now, with `reset`."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))


def peer_saver(*, sync_save: bool) -> Any:
    """torch_checkpointing's manager for the CPU; None if it is not installed."""
    try:
        from torch_checkpointing import CheckpointManager as Peer
    except ImportError:
        return None
    if sync_save:
        return Peer.Config.with_sync_save().build()
    from torch_checkpointing import AsyncCheckpointSaverConfig
    from torch_checkpointing.staging import CheckpointStagerConfig

    staging = CheckpointStagerConfig(use_pinned_memory=False, use_non_blocking_copy=False, use_async_staging=False)
    return Peer.Config(save=AsyncCheckpointSaverConfig(staging_config=staging)).build()


def ratio(times: dict[str, list[float]], over: str, under: str = "weightstore") -> float:
    return statistics.median(a / b for a, b in zip(times[over], times[under], strict=True))


def line(text: str, value: float, goal: str, reached: bool) -> None:
    print(f"{'reached' if reached else 'NOT REACHED':<12} {text:<62} {value:6.2f}  (goal {goal})", flush=True)


def show(title: str, times: dict[str, list[float]], nbytes: int) -> None:
    for name, each in times.items():
        middle = statistics.median(each)
        print(f"{title:<8} {name:<26} {middle * 1000:9.1f} ms  {nbytes / middle / 1e9:6.2f} GB/s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=int, default=1000, help="of the model; the state is three times that")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--directory", type=Path)
    given = parser.parse_args()
    run = Run(given.megabytes * 1_000_000)
    nbytes = sum(tensor.nbytes for tensor in run.tensors())
    print(f"state of {nbytes / 1e9:.2f} GB, {given.rounds} rounds, {torch.get_num_threads()} threads of torch")
    with tempfile.TemporaryDirectory(dir=given.directory) as folder:
        times = saves(run, Path(folder), given.rounds)
        show("save", times, nbytes)
        value = ratio(times, "torch.save + fsync")
        line("durable save, x torch.save + fsync", value, ">= 2", value >= 2)
        if "torch_checkpointing" in times:
            value = ratio(times, "torch_checkpointing")
            line("durable save, x torch_checkpointing", value, ">= 1.5", value >= 1.5)
        restored, rise = restores(run, Path(folder), given.rounds)
        show("restore", restored, nbytes)
        value = ratio(restored, "torch.load and copies")
        line("restore in place, x torch.load(mmap) and copies", value, ">= 1.5", value >= 1.5)
        value = ratio(restored, "read")
        line("restore in place, of the rate of reading into memory", value, ">= 0.7", value >= 0.7)
        line("MiB that the memory rises in a restore", rise / 2**20, "<= 64", rise <= 64 << 20)
        stalled = stalls(run, Path(folder), given.rounds)
        show("stall", stalled, nbytes)
        value = 1 / ratio(stalled, "memcpy, touched", "weightstore, later")
        line("stall from the second save on, x memcpy into touched memory", value, "<= 1.2", value <= 1.2)
        value = 1 / ratio(stalled, "memcpy, fresh", "weightstore, first")
        line("stall of the first save, x memcpy into fresh memory", value, "<= 1.2", value <= 1.2)
        if "torch_checkpointing" in stalled:
            value = 1 / ratio(stalled, "torch_checkpointing", "weightstore, later")
            line("stall from the second save on, x torch_checkpointing", value, "< 1", value < 1)


if __name__ == "__main__":
    main()

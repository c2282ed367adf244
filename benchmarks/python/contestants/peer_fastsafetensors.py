"""fastsafetensors: reads through bounce buffers with many threads, writes shards in parallel."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.python import model
from benchmarks.python.contestants.base import Loads, LoadsInto, Writes

if TYPE_CHECKING:
    import torch


class Fastsafetensors(Writes, Loads, LoadsInto):
    name = "fastsafetensors"
    modules = ("fastsafetensors", "fastsafetensors.saver")

    def saved(self, path: Path, names: list[str]) -> dict[str, Any]:
        return {name: data for shard in path.iterdir() for name, (_, _, data) in model.mapped(shard).items()}

    def write(self, tensors: dict[str, torch.Tensor], path: Path) -> None:
        from fastsafetensors.saver import ParallelSaver

        path.mkdir()
        ParallelSaver(num_shards=2).save(tensors, str(path / "model"))

    def load(self, path: Path, expected: list[str]) -> dict[str, torch.Tensor]:
        from fastsafetensors import fastsafe_open

        with fastsafe_open(str(path), framework="pt", device="cpu", nogds=True) as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118

    def load_into(self, path: Path, tensors: dict[str, torch.Tensor]) -> None:
        for name, loaded in self.load(path, list(tensors)).items():
            tensors[name].copy_(loaded)


CONTESTANTS = [Fastsafetensors()]

"""torch.save and torch.load."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.python.contestants.base import Lists, Loads, LoadsInto, Writes

if TYPE_CHECKING:
    import torch


class TorchPickle(Writes, Loads, LoadsInto, Lists):
    suffix = ".pt"
    modules = ("torch",)

    def __init__(self, name: str, *, map_file: bool) -> None:
        self.name = name
        self.map_file = map_file

    def saved(self, path: Path, names: list[str]) -> dict[str, Any]:
        return self.load(path, names)

    def write(self, tensors: dict[str, torch.Tensor], path: Path) -> None:
        import torch

        torch.save(tensors, path)

    def load(self, path: Path, expected: list[str]) -> dict[str, torch.Tensor]:
        import torch

        return torch.load(path, weights_only=True, mmap=self.map_file)

    def list_names(self, path: Path) -> list[str]:
        return list(self.load(path, []))

    def load_into(self, path: Path, tensors: dict[str, torch.Tensor]) -> None:
        for name, loaded in self.load(path, list(tensors)).items():
            tensors[name].copy_(loaded)


CONTESTANTS = [
    TorchPickle("torch.save/load", map_file=False),
    TorchPickle("torch.load mmap", map_file=True),
]

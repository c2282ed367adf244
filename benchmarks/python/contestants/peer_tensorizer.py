"""CoreWeave's tensorizer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.python.contestants.base import Loads, Writes

if TYPE_CHECKING:
    import torch


class Tensorizer(Writes, Loads):
    suffix = ".tensors"
    modules = ("tensorizer",)

    def __init__(self, name: str, readers: int) -> None:
        self.name = name
        self.readers = readers

    def saved(self, path: Path, names: list[str]) -> dict[str, Any]:
        return self.load(path, names)

    def write(self, tensors: dict[str, torch.Tensor], path: Path) -> None:
        from tensorizer import TensorSerializer

        serializer = TensorSerializer(str(path))
        serializer.write_state_dict(tensors)
        serializer.close()

    def load(self, path: Path, expected: list[str]) -> dict[str, torch.Tensor]:
        from tensorizer import TensorDeserializer

        with TensorDeserializer(str(path), device="cpu", num_readers=self.readers) as file:
            return dict(file.items())


CONTESTANTS = [Tensorizer("tensorizer", 1), Tensorizer("tensorizer 2 readers", 2)]

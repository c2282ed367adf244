"""Weightstore itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from benchmarks.python.contestants.base import Kind, Lists, Loads, LoadsInto, ReadsOne, Saves, Transforms

if TYPE_CHECKING:
    import torch


class Ours(Saves, Loads, LoadsInto, Lists, ReadsOne, Transforms):
    kind = Kind.OURS
    modules = ("weightstore", "weightstore.torch")

    def __init__(self, name: str, *, suffix: str = ".safetensors", backend: str = "mmap") -> None:
        self.name = name
        self.suffix = suffix
        self.backend = backend

    def saved(self, path: Path, names: list[str]) -> dict[str, Any]:
        if self.suffix == ".safetensors":
            return super().saved(path, names)
        return self.load(path, names)

    def save(self, tensors: dict[str, torch.Tensor], path: Path, *, durable: bool) -> None:
        import weightstore.torch

        weightstore.torch.save_file(tensors, path, durable=durable)

    def load(self, path: Path, expected: list[str]) -> dict[str, torch.Tensor]:
        import weightstore.torch

        return weightstore.torch.load_file(path, backend=self.backend)

    def load_into(self, path: Path, tensors: dict[str, torch.Tensor]) -> None:
        import weightstore

        with weightstore.open(path) as file:
            file.load_into(tensors)

    def transpose(self, matrix: np.ndarray) -> np.ndarray:
        from weightstore import _core

        return np.frombuffer(_core.Producer.buffer(matrix).transpose("F32", *matrix.shape).read(), np.uint8)

    def cast(self, matrix: np.ndarray, dtype: str) -> np.ndarray:
        from weightstore import _core

        return np.frombuffer(_core.Producer.buffer(matrix).cast("F32", dtype).read(), np.uint8)

    def list_names(self, path: Path) -> list[str]:
        import weightstore

        with weightstore.open(path) as file:
            return list(file.keys())

    def read_one(self, path: Path, name: str) -> torch.Tensor:
        import weightstore

        with weightstore.open(path) as file:
            return file[name].torch()


class OursTransposed(Ours):
    """The hardest input for memory: no tensor is contiguous, each has to be gathered."""

    def accept(self, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {name: tensor.t() if tensor.dim() == 2 else tensor for name, tensor in tensors.items()}


CONTESTANTS = [
    Ours("weightstore"),
    Ours("weightstore copying", backend="pread"),
    Ours("weightstore .bpk", suffix=".bpk"),
    Ours("weightstore .bpk copying", suffix=".bpk", backend="pread"),
    Ours("weightstore .pt", suffix=".pt"),
    Ours("weightstore .pt copying", suffix=".pt", backend="pread"),
    OursTransposed("weightstore, transposed tensors"),
]

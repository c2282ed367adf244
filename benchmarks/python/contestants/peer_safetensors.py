"""The reference implementation of SafeTensors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.python.contestants.base import Lists, Loads, LoadsInto, ReadsOne, Writes, as_arrays

if TYPE_CHECKING:
    import numpy as np
    import torch


class SafetensorsTorch(Writes, Loads, LoadsInto, Lists, ReadsOne):
    modules = ("safetensors.torch",)

    def __init__(self, name: str, backend: str) -> None:
        self.name = name
        self.backend = backend

    def write(self, tensors: dict[str, torch.Tensor], path: Path) -> None:
        import safetensors.torch

        safetensors.torch.save_file(tensors, path)

    def load(self, path: Path, expected: list[str]) -> dict[str, torch.Tensor]:
        import safetensors.torch

        return safetensors.torch.load_file(path, backend=self.backend)

    def load_into(self, path: Path, tensors: dict[str, torch.Tensor]) -> None:
        import safetensors.torch

        for name, loaded in safetensors.torch.load_file(path, backend=self.backend).items():
            tensors[name].copy_(loaded)

    def list_names(self, path: Path) -> list[str]:
        import safetensors

        with safetensors.safe_open(path, framework="pt") as file:
            return list(file.keys())

    def read_one(self, path: Path, name: str) -> torch.Tensor:
        import safetensors

        with safetensors.safe_open(path, framework="pt") as file:
            return file.get_tensor(name)


class SafetensorsNumpy(Writes, Loads):
    name = "safetensors.numpy"
    modules = ("safetensors.numpy", "ml_dtypes")

    def accept(self, tensors: dict[str, torch.Tensor]) -> dict[str, np.ndarray]:
        return as_arrays(tensors)

    def write(self, tensors: dict[str, np.ndarray], path: Path) -> None:
        import safetensors.numpy

        safetensors.numpy.save_file(tensors, path)

    def load(self, path: Path, expected: list[str]) -> dict[str, np.ndarray]:
        import safetensors.numpy

        return safetensors.numpy.load_file(path)


CONTESTANTS = [
    SafetensorsTorch("safetensors.torch", "mmap"),
    SafetensorsTorch("safetensors.torch pread", "pread"),
    SafetensorsNumpy(),
]

"""What users write to load a module: load_state_dict() of what safetensors or torch.load gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.python.contestants.base import Loads, Writes, as_arrays
from benchmarks.python.contestants.modules import FillsModule

if TYPE_CHECKING:
    import numpy as np
    import torch

Tensors = dict[str, Any]


def _safetensors(path: Path, device: str) -> Tensors:
    import safetensors.torch

    return safetensors.torch.load_file(path, device=device)


def _torch(path: Path, device: str) -> Tensors:
    import torch

    return torch.load(path, weights_only=True, map_location=device)


def _torch_mapped(path: Path, device: str) -> Tensors:
    import torch

    return torch.load(path, weights_only=True, map_location=device, mmap=True)


class StateDict(FillsModule, Writes):
    def __init__(self, name: str, suffix: str, read: Callable[[Path, str], Tensors], device: str = "cpu") -> None:
        self.name = f"load_state_dict({name})" + ("" if device == "cpu" else f" {device}")
        self.suffix = suffix
        self.modules = ("safetensors.torch",) if suffix == ".safetensors" else ("torch",)
        self.read = read
        self.device = device

    def saved(self, path: Path, names: list[str]) -> dict[str, Any]:
        return self.read(path, "cpu")

    def write(self, module: torch.nn.Module, path: Path) -> None:
        if self.suffix == ".safetensors":
            import safetensors.torch

            safetensors.torch.save_file(module.state_dict(), path)
        else:
            import torch

            torch.save(module.state_dict(), path)

    def load_into(self, path: Path, module: torch.nn.Module) -> None:
        module.load_state_dict(self.read(path, self.device))
        self.wait()


class TorchArrays(Writes, Loads):
    """Arrays through torch.save and torch.load, there being no other way into a .pt file."""

    name = "torch.save/load numpy"
    suffix = ".pt"
    modules = ("torch", "ml_dtypes")

    def accept(self, tensors: dict[str, torch.Tensor]) -> dict[str, np.ndarray]:
        return as_arrays(tensors)

    def saved(self, path: Path, names: list[str]) -> dict[str, Any]:
        return _torch(path, "cpu")

    def write(self, arrays: dict[str, np.ndarray], path: Path) -> None:
        import torch

        torch.save({name: torch.from_numpy(array) for name, array in arrays.items()}, path)

    def load(self, path: Path, expected: Any) -> dict[str, np.ndarray]:
        return as_arrays(_torch(path, "cpu"))


CONTESTANTS = [
    *(
        StateDict(name, suffix, read, device)
        for device in ("cpu", "cuda")
        for name, suffix, read in (
            ("safetensors.torch", ".safetensors", _safetensors),
            ("torch.load", ".pt", _torch),
            ("torch.load mmap", ".pt", _torch_mapped),
        )
    ),
    TorchArrays(),
]

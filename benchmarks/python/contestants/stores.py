"""Weightstore's stores: from a module or from arrays into a file, and back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.python.contestants.base import Kind, Lists, Loads, Saves, as_arrays
from benchmarks.python.contestants.modules import FillsModule, meta_module, state_of
from benchmarks.python.model import Shapes

if TYPE_CHECKING:
    import numpy as np
    import torch

_SUFFIXES = {"SafetensorsStore": ".safetensors", "BurnpackStore": ".bpk", "PytorchStore": ".pt"}


class Store(Saves):
    kind = Kind.OURS
    modules = ("weightstore", "weightstore.torch", "weightstore.stores")

    def __init__(self, name: str, store: str, *, zero_copy: bool = False) -> None:
        self.name = name
        self.suffix = _SUFFIXES[store]
        self.store = store
        self.zero_copy = zero_copy

    def open(self, path: Path) -> Any:
        import weightstore

        return getattr(weightstore, self.store).from_file(path).zero_copy(self.zero_copy)

    def saved(self, path: Path, names: list[str]) -> dict[str, Any]:
        if self.suffix == ".safetensors":
            return super().saved(path, names)
        return self.arrays(path)

    def save(self, module: Any, path: Path, *, durable: bool) -> None:
        import weightstore

        weightstore.save_into(module, self.open(path).durable(durable))

    def arrays(self, path: Path) -> dict[str, np.ndarray]:
        return {name: snapshot.numpy() for name, snapshot in self.open(path).get_all_snapshots().items()}


class StoreModule(FillsModule, Store):
    def __init__(self, name: str, store: str, *, zero_copy: bool = False, device: str = "cpu") -> None:
        super().__init__(name, store, zero_copy=zero_copy)
        self.device = device

    def load_into(self, path: Path, module: torch.nn.Module) -> None:
        import weightstore

        weightstore.load_from(module, self.open(path))
        self.wait()


class StoreMeta(Store, Loads):
    """Gives a module its memory."""

    def expect(self, wanted: Shapes) -> torch.nn.Module:
        return meta_module(wanted)

    def load(self, path: Path, module: torch.nn.Module) -> dict[str, torch.Tensor]:
        import weightstore

        weightstore.load_from(module, self.open(path))
        return state_of(module)


class StoreArrays(Store, Loads, Lists):
    def accept(self, tensors: dict[str, torch.Tensor]) -> dict[str, np.ndarray]:
        return as_arrays(tensors)

    def load(self, path: Path, expected: Any) -> dict[str, np.ndarray]:
        return self.arrays(path)

    def list_names(self, path: Path) -> list[str]:
        return self.open(path).keys()


CONTESTANTS = [
    *(StoreModule(store, store) for store in _SUFFIXES),
    *(StoreModule(f"{store} zero_copy", store, zero_copy=True) for store in _SUFFIXES),
    *(StoreModule(f"{store} cuda", store, device="cuda") for store in _SUFFIXES),
    *(StoreMeta(f"{store} meta", store) for store in _SUFFIXES),
    *(StoreArrays(f"{store} numpy", store) for store in _SUFFIXES),
]

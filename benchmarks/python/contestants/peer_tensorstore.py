"""tensorstore, one zarr3 array a tensor, all of them in flight at once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.python.contestants.base import Loads, Writes, as_arrays

if TYPE_CHECKING:
    import numpy as np
    import torch


def _spec(path: Path, name: str) -> dict[str, Any]:
    return {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{path / name}/", "file_io_sync": False}}


class Tensorstore(Writes, Loads):
    name = "tensorstore zarr3"
    suffix = ".zarr"
    modules = ("tensorstore", "ml_dtypes")

    def accept(self, tensors: dict[str, torch.Tensor]) -> dict[str, np.ndarray]:
        return as_arrays(tensors)

    def saved(self, path: Path, names: list[str]) -> dict[str, Any]:
        return self.load(path, names)

    def write(self, tensors: dict[str, np.ndarray], path: Path) -> None:
        import tensorstore

        opening = [
            (tensorstore.open(_spec(path, name), create=True, dtype=array.dtype.name, shape=array.shape), array)
            for name, array in tensors.items()
        ]
        for written in [
            store.result().write(array, can_reference_source_data_indefinitely=True) for store, array in opening
        ]:
            written.result()

    def load(self, path: Path, expected: list[str]) -> dict[str, np.ndarray]:
        import tensorstore

        opening = {name: tensorstore.open(_spec(path, name), open=True) for name in expected}
        reading = {name: store.result().read() for name, store in opening.items()}
        return {name: data.result() for name, data in reading.items()}


CONTESTANTS = [Tensorstore()]

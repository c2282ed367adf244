"""What a task may ask of a contestant."""

from __future__ import annotations

import abc
import enum
import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from benchmarks.python import cache, model
from benchmarks.python.model import Shapes

if TYPE_CHECKING:
    import torch


class Kind(enum.Enum):
    OURS = "ours"
    PEER = "peer"
    LIMIT = "limit"
    MACHINE = "machine"  # for orientation; nothing is compared with it


class Contestant:
    """Who takes part. These methods are outside the timed part: imports, conversions and checks belong into them."""

    name: str
    kind = Kind.PEER
    suffix = ".safetensors"  # of the files that it writes and reads
    modules: tuple[str, ...] = ()  # needed; imported before anything is timed

    def start(self) -> None:
        for module in self.modules:
            importlib.import_module(module)

    def accept(self, tensors: dict[str, torch.Tensor]) -> Any:
        """The model in the form that save() and load_into() take."""
        return tensors

    def accept_matrix(self, matrix: np.ndarray) -> Any:
        """The matrix in the form that transpose() and cast() take."""
        return matrix

    def expect(self, wanted: Shapes) -> Any:
        """What the file holds, in the form that load() takes."""
        return list(wanted)

    def saved(self, path: Path, names: list[str]) -> dict[str, Any]:
        """What save() wrote, for comparison."""
        return {name: data for name, (_, _, data) in model.mapped(path).items()}

    def loaded(self, result: Any, path: Path) -> dict[str, Any]:
        """What load() returned, tensor by tensor."""
        return result

    def filled(self, accepted: Any, tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
        """What load_into() has filled, tensor by tensor; `tensors` is what accept() got."""
        return tensors


# What a contestant can do: it derives from these. They are timed, and do nothing but the operation.


class Saves(Contestant, abc.ABC):
    @abc.abstractmethod
    def save(self, tensors: Any, path: Path, *, durable: bool) -> None: ...


class Writes(Saves):
    """Saves by a write() that knows nothing of durability."""

    @abc.abstractmethod
    def write(self, tensors: Any, path: Path) -> None: ...

    def save(self, tensors: Any, path: Path, *, durable: bool) -> None:
        self.write(tensors, path)
        if durable:
            cache.sync_tree(path)


class Loads(Contestant, abc.ABC):
    @abc.abstractmethod
    def load(self, path: Path, expected: Any) -> Any: ...


class LoadsInto(Contestant, abc.ABC):
    @abc.abstractmethod
    def load_into(self, path: Path, tensors: Any) -> None: ...


class Lists(Contestant, abc.ABC):
    @abc.abstractmethod
    def list_names(self, path: Path) -> list[str]: ...


class ReadsOne(Contestant, abc.ABC):
    @abc.abstractmethod
    def read_one(self, path: Path, name: str) -> Any: ...


class Transforms(Contestant, abc.ABC):
    @abc.abstractmethod
    def transpose(self, matrix: Any) -> Any:
        """The transpose, row-major, in new memory."""

    @abc.abstractmethod
    def cast(self, matrix: Any, dtype: str) -> Any:
        """The F32 matrix as another type, in new memory."""


def address(buffer: Any) -> tuple[int, int]:
    """Address and bytes of a numpy array or a torch tensor."""
    if isinstance(buffer, np.ndarray):
        return buffer.ctypes.data, buffer.nbytes
    return buffer.data_ptr(), buffer.nbytes


def as_bytes(buffer: Any) -> np.ndarray:
    """The bytes of a contiguous numpy array or torch tensor."""
    if isinstance(buffer, np.ndarray):
        return np.ascontiguousarray(buffer).reshape(-1).view(np.uint8)
    import torch

    return buffer.contiguous().reshape(-1).view(torch.uint8).numpy()


def as_arrays(tensors: dict[str, torch.Tensor]) -> dict[str, np.ndarray]:
    """The same memory as numpy arrays."""
    import ml_dtypes
    import torch

    def array(tensor: torch.Tensor) -> np.ndarray:
        if tensor.dtype == torch.bfloat16:
            return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
        return tensor.numpy()

    return {name: array(tensor) for name, tensor in tensors.items()}

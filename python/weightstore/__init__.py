"""Stores the weights of models: SafeTensors and Burnpack, fast and safe.

>>> import weightstore
>>> with weightstore.open("model.safetensors") as f:
...     part = f["layer.weight"][:10].numpy()

`weightstore.numpy` and `weightstore.torch` have the verbs of the safetensors package (save_file, load_file, ...); the same
verbs write Burnpack when the path ends in `.bpk`.
"""

from typing import TYPE_CHECKING, Any

from . import errors
from ._convert import convert
from ._core import __version__
from ._deferred import DeferredTensor
from ._file import File, open
from ._handle import TensorHandle
from ._safe_open import safe_open
from .errors import (
    BudgetExceeded,
    BurnpackError,
    CheckpointError,
    ConflictError,
    FormatError,
    InvalidArgument,
    LimitError,
    NoDataError,
    OffloadEof,
    OperationCancelled,
    PagerError,
    PytorchError,
    SafetensorError,
    SafetensorsError,
    SharedTensorsError,
    StoreError,
    StoreIOError,
    TensorNotFound,
)

if TYPE_CHECKING:
    from ._loader import CheckpointReader, Loader
    from ._saver import Saver, split_sparse_dense_state_dict

__all__ = [
    "BudgetExceeded",
    "BurnpackError",
    "CheckpointError",
    "CheckpointReader",
    "ConflictError",
    "DeferredTensor",
    "File",
    "FormatError",
    "InvalidArgument",
    "LimitError",
    "Loader",
    "NoDataError",
    "OffloadEof",
    "OperationCancelled",
    "PagerError",
    "PytorchError",
    "SafetensorError",
    "SafetensorsError",
    "Saver",
    "SharedTensorsError",
    "StoreError",
    "StoreIOError",
    "TensorHandle",
    "TensorNotFound",
    "__version__",
    "convert",
    "errors",
    "open",
    "safe_open",
    "split_sparse_dense_state_dict",
]

# What needs torch, and is imported when it is first asked for.
_LAZY = {
    "CheckpointReader": "_loader",
    "Loader": "_loader",
    "Saver": "_saver",
    "split_sparse_dense_state_dict": "_saver",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
    globals()[name] = value
    return value

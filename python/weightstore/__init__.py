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
    from ._pager import LayerPager, PagedTensor, Pager

__all__ = [
    "BudgetExceeded",
    "BurnpackError",
    "CheckpointError",
    "ConflictError",
    "DeferredTensor",
    "File",
    "FormatError",
    "InvalidArgument",
    "LayerPager",
    "LimitError",
    "NoDataError",
    "OffloadEof",
    "OperationCancelled",
    "PagedTensor",
    "Pager",
    "PagerError",
    "PytorchError",
    "SafetensorError",
    "SafetensorsError",
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
]


def __getattr__(name: str) -> Any:
    # Most programs page nothing, and need not pay for it.
    if name in ("LayerPager", "PagedTensor", "Pager"):
        from . import _pager

        return getattr(_pager, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

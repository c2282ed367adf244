"""Stores the weights of models: SafeTensors and Burnpack, fast and safe; reads the files of torch.save() too.

>>> import weightstore
>>> with weightstore.open("model.safetensors") as f:
...     part = f["layer.weight"][:10].numpy()

`weightstore.numpy` and `weightstore.torch` have the verbs of the safetensors package (save_file, load_file, ...); the same
verbs write Burnpack when the path ends in `.bpk`.
"""

from . import errors
from ._config import read_config
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

__all__ = [
    "BudgetExceeded",
    "BurnpackError",
    "CheckpointError",
    "ConflictError",
    "DeferredTensor",
    "File",
    "FormatError",
    "InvalidArgument",
    "LimitError",
    "NoDataError",
    "OffloadEof",
    "OperationCancelled",
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
    "read_config",
    "safe_open",
]

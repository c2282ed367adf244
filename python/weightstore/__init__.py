"""Stores the weights of models: SafeTensors and Burnpack; reads files of torch.save and numpy, too. Fast and safe.

>>> import weightstore
>>> with weightstore.open("model.safetensors") as f:
...     part = f["layer.weight"][:10].numpy()

Stores save and load whole modules, with filters, renaming and conversions on the way:

>>> from weightstore import SafetensorsStore
>>> SafetensorsStore.from_file("encoder.safetensors").with_regex(r"^encoder\\.").collect_from(model)

`weightstore.numpy` and `weightstore.torch` have the verbs of the safetensors package (save_file, load_file, ...); the same
verbs write Burnpack when the path ends in `.bpk`.
"""

from typing import TYPE_CHECKING, Any

from . import errors
from ._core import QuantScheme, __version__
from ._files.config import read_config
from ._files.convert import convert
from ._files.deferred import DeferredTensor
from ._files.file import File
from ._files.file import open as open  # not in __all__: `import *` shall leave the builtin alone
from ._files.handle import TensorHandle
from ._files.safe_open import safe_open
from ._files.source import LeftOut
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
    OutOfMemory,
    PagerError,
    PytorchError,
    SafetensorError,
    SafetensorsError,
    SharedTensorsError,
    StoreError,
    StoreIOError,
    TensorNotFound,
    ValidationError,
)

if TYPE_CHECKING:
    from ._checkpoints.loader import Loader
    from ._checkpoints.reader import CheckpointReader
    from ._checkpoints.saver import Saver, split_sparse_dense_state_dict
    from ._layer_pager import LayerPager
    from ._modules.adapters import (
        BurnToPyTorchAdapter,
        ChainAdapter,
        FloatCastAdapter,
        HalfPrecisionAdapter,
        ModuleAdapter,
        PyTorchToBurnAdapter,
        dequantize,
        quantize,
    )
    from ._modules.apply.result import (
        AdapterError,
        ApplyError,
        ApplyResult,
        DTypeMismatch,
        LoadError,
        MissingTensor,
        ShapeMismatch,
    )
    from ._modules.filter import PathFilter
    from ._modules.module_tensors import apply, collect
    from ._modules.param_ids import param_ids, set_param_ids
    from ._modules.remap import KeyRemapper, map_indices_contiguous, map_indices_contiguous_except
    from ._modules.snapshot import TensorData, TensorSnapshot
    from ._offload.empty import empty_weights
    from ._offload.offloaded import OffloadedModule, offload_module
    from ._pager import PagedTensor, Pager
    from ._policies import Schedule, schedule
    from .stores import (
        BurnpackStore,
        FileStore,
        ModuleSnapshot,
        ModuleStore,
        PytorchStore,
        SafetensorsStore,
        load_from,
        save_into,
    )

# Imported on first use: they bring in numpy or torch.
_LAZY_NAMES = {
    "_modules.adapters": "BurnToPyTorchAdapter ChainAdapter FloatCastAdapter HalfPrecisionAdapter ModuleAdapter PyTorchToBurnAdapter "
    "dequantize quantize",
    "_modules.apply.result": "AdapterError ApplyError ApplyResult DTypeMismatch LoadError MissingTensor ShapeMismatch",
    "_modules.filter": "PathFilter",
    "_checkpoints.loader": "Loader",
    "_checkpoints.reader": "CheckpointReader",
    "_modules.module_tensors": "apply collect",
    "_layer_pager": "LayerPager",
    "_offload.empty": "empty_weights",
    "_offload.offloaded": "OffloadedModule offload_module",
    "_pager": "PagedTensor Pager",
    "_policies": "Schedule schedule",
    "_modules.param_ids": "param_ids set_param_ids",
    "_modules.remap": "KeyRemapper map_indices_contiguous map_indices_contiguous_except",
    "_checkpoints.saver": "Saver split_sparse_dense_state_dict",
    "_modules.snapshot": "TensorData TensorSnapshot",
    "stores": "BurnpackStore FileStore ModuleSnapshot ModuleStore PytorchStore SafetensorsStore load_from save_into",
}
_MODULE_OF = {name: module for module, names in _LAZY_NAMES.items() for name in names.split()}


# What users of other packages look for here, and where it is.
_VERBS = "; weightstore.torch and weightstore.numpy have it"
_IN_TORCH = "; weightstore.torch has it"
_ELSEWHERE = {
    **dict.fromkeys(("load", "load_file", "save", "save_file"), _VERBS),
    **dict.fromkeys(("load_model", "save_model"), _IN_TORCH),
    **dict.fromkeys(("serialize", "deserialize", "serialize_file"), "; weightstore.compat has it"),
    "HashTable": "; import weightstore.torch, then use torch.classes.store.HashTable",
    "WriteBlock": "; import weightstore.torch, then use torch.classes.store.WriteBlock",
}


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module 'weightstore' has no attribute {name!r}{_ELSEWHERE.get(name, '')}")
    from importlib import import_module

    value = getattr(import_module(f".{module}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})


__all__ = [
    "AdapterError",
    "ApplyError",
    "ApplyResult",
    "BudgetExceeded",
    "BurnToPyTorchAdapter",
    "BurnpackError",
    "BurnpackStore",
    "ChainAdapter",
    "CheckpointError",
    "CheckpointReader",
    "ConflictError",
    "DTypeMismatch",
    "DeferredTensor",
    "File",
    "FileStore",
    "FloatCastAdapter",
    "FormatError",
    "HalfPrecisionAdapter",
    "InvalidArgument",
    "KeyRemapper",
    "LayerPager",
    "LeftOut",
    "LimitError",
    "LoadError",
    "MissingTensor",
    "ModuleAdapter",
    "ModuleSnapshot",
    "ModuleStore",
    "Loader",
    "NoDataError",
    "OffloadEof",
    "OffloadedModule",
    "OperationCancelled",
    "OutOfMemory",
    "PagedTensor",
    "Pager",
    "PagerError",
    "PathFilter",
    "PyTorchToBurnAdapter",
    "PytorchError",
    "PytorchStore",
    "QuantScheme",
    "SafetensorError",
    "SafetensorsError",
    "SafetensorsStore",
    "ShapeMismatch",
    "Saver",
    "Schedule",
    "SharedTensorsError",
    "StoreError",
    "StoreIOError",
    "TensorData",
    "TensorHandle",
    "TensorNotFound",
    "TensorSnapshot",
    "ValidationError",
    "__version__",
    "apply",
    "collect",
    "convert",
    "dequantize",
    "empty_weights",
    "errors",
    "load_from",
    "map_indices_contiguous",
    "map_indices_contiguous_except",
    "offload_module",
    "param_ids",
    "quantize",
    "read_config",
    "safe_open",
    "save_into",
    "schedule",
    "set_param_ids",
    "split_sparse_dense_state_dict",
]

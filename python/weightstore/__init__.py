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
    from ._checkpoints.hash_table import HashTable, HashTableSnapshot
    from ._checkpoints.loader import Loader
    from ._checkpoints.reader import CheckpointReader
    from ._checkpoints.saver import Saver, split_sparse_dense_state_dict
    from ._convert.convert import convert
    from ._convert.metadata import set_metadata
    from ._convert.plan import Plan, PlannedTensor
    from ._files.config import read_config
    from ._files.deferred import DeferredTensor
    from ._files.entries.metadata import GgufValue, Metadata
    from ._files.file import File
    from ._files.file import open as open  # not in __all__: `import *` shall leave the builtin alone
    from ._files.handle import TensorHandle
    from ._files.safe_open import safe_open
    from ._files.source import LeftOut
    from ._layer_pager import LayerPager
    from ._look.difference import Difference, difference
    from ._look.report import html_report
    from ._look.statistics import Statistics, statistics
    from ._look.summary import Summary, summarize
    from ._look.verification import Verification, verify
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
    from ._modules.gguf_adapter import GgufToHuggingFaceAdapter
    from ._modules.module_tensors import apply, collect
    from ._modules.param_ids import param_ids, set_param_ids
    from ._modules.remap import KeyRemapper, map_indices_contiguous, map_indices_contiguous_except
    from ._modules.snapshot import TensorData, TensorSnapshot
    from ._offload.empty import empty_weights
    from ._offload.offloaded import OffloadedModule, offload_module
    from ._pager import PagedTensor, Pager
    from ._policies import Schedule, schedule
    from ._state.loading import load_state
    from ._state.saving import save_state
    from ._state.types import register_state_type
    from ._training.contents import PerRank
    from ._training.manager import CheckpointManager
    from ._training.restored import Restored
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

# Imported on first use: they bring in numpy or torch, or take time that a command which only prints a list need not spend.
_LAZY_NAMES = {
    "_convert.convert": "convert",
    "_convert.metadata": "set_metadata",
    "_convert.plan": "Plan PlannedTensor",
    "_files.config": "read_config",
    "_files.deferred": "DeferredTensor",
    "_files.entries.metadata": "GgufValue Metadata",
    "_files.file": "File open",
    "_files.handle": "TensorHandle",
    "_files.safe_open": "safe_open",
    "_files.source": "LeftOut",
    "_look.difference": "Difference difference",
    "_look.statistics": "Statistics statistics",
    "_look.summary": "Summary summarize",
    "_look.verification": "Verification verify",
    "_modules.adapters": "BurnToPyTorchAdapter ChainAdapter FloatCastAdapter HalfPrecisionAdapter ModuleAdapter PyTorchToBurnAdapter "
    "dequantize quantize",
    "_modules.apply.result": "AdapterError ApplyError ApplyResult DTypeMismatch LoadError MissingTensor ShapeMismatch",
    "_modules.filter": "PathFilter",
    "_modules.gguf_adapter": "GgufToHuggingFaceAdapter",
    "_checkpoints.hash_table": "HashTable HashTableSnapshot",
    "_checkpoints.loader": "Loader",
    "_checkpoints.reader": "CheckpointReader",
    "_modules.module_tensors": "apply collect",
    "_layer_pager": "LayerPager",
    "_offload.empty": "empty_weights",
    "_offload.offloaded": "OffloadedModule offload_module",
    "_pager": "PagedTensor Pager",
    "_look.report": "html_report",
    "_policies": "Schedule schedule",
    "_modules.param_ids": "param_ids set_param_ids",
    "_modules.remap": "KeyRemapper map_indices_contiguous map_indices_contiguous_except",
    "_state.loading": "load_state",
    "_state.saving": "save_state",
    "_state.types": "register_state_type",
    "_training.contents": "PerRank",
    "_training.manager": "CheckpointManager",
    "_training.restored": "Restored",
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
    "CheckpointManager",
    "CheckpointReader",
    "ConflictError",
    "DTypeMismatch",
    "DeferredTensor",
    "Difference",
    "File",
    "FileStore",
    "FloatCastAdapter",
    "FormatError",
    "GgufToHuggingFaceAdapter",
    "GgufValue",
    "HalfPrecisionAdapter",
    "HashTable",
    "HashTableSnapshot",
    "InvalidArgument",
    "KeyRemapper",
    "LayerPager",
    "LeftOut",
    "LimitError",
    "LoadError",
    "Metadata",
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
    "PerRank",
    "Plan",
    "PlannedTensor",
    "PyTorchToBurnAdapter",
    "PytorchError",
    "PytorchStore",
    "QuantScheme",
    "Restored",
    "SafetensorError",
    "SafetensorsError",
    "SafetensorsStore",
    "ShapeMismatch",
    "Saver",
    "Schedule",
    "SharedTensorsError",
    "Statistics",
    "StoreError",
    "StoreIOError",
    "Summary",
    "TensorData",
    "TensorHandle",
    "TensorNotFound",
    "TensorSnapshot",
    "ValidationError",
    "Verification",
    "__version__",
    "apply",
    "collect",
    "convert",
    "dequantize",
    "difference",
    "empty_weights",
    "errors",
    "html_report",
    "load_from",
    "load_state",
    "map_indices_contiguous",
    "map_indices_contiguous_except",
    "offload_module",
    "param_ids",
    "quantize",
    "read_config",
    "register_state_type",
    "safe_open",
    "save_into",
    "save_state",
    "set_metadata",
    "schedule",
    "set_param_ids",
    "split_sparse_dense_state_dict",
    "statistics",
    "summarize",
    "verify",
]

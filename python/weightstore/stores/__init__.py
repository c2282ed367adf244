"""Files that modules are saved into and loaded from."""

from .._modules.module_store import ModuleStore
from ._burnpack import BurnpackStore
from ._file import FileStore
from ._functions import ModuleSnapshot, load_from, save_into
from ._pytorch import PytorchStore
from ._safetensors import SafetensorsStore

__all__ = [
    "BurnpackStore",
    "FileStore",
    "ModuleSnapshot",
    "ModuleStore",
    "PytorchStore",
    "SafetensorsStore",
    "load_from",
    "save_into",
]

"""Files that modules are saved into and loaded from."""

from .._modules.module_store import ModuleStore
from ._burnpack import BurnpackStore
from ._pytorch import PytorchStore
from ._safetensors import SafetensorsStore

__all__ = ["BurnpackStore", "ModuleStore", "PytorchStore", "SafetensorsStore"]

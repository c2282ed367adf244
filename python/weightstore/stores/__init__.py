"""Files that modules are saved into and loaded from."""

from ._burnpack import BurnpackStore
from ._protocol import ModuleStore
from ._pytorch import PytorchStore
from ._safetensors import SafetensorsStore

__all__ = ["BurnpackStore", "ModuleStore", "PytorchStore", "SafetensorsStore"]

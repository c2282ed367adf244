"""Copies of tensors, for saves in the background, in memory that is kept for the next save. Imports torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from .._tensors import torch_memory


class KeptMemory:
    def __init__(self) -> None:
        self._kept: dict[str, torch.Tensor] = {}

    def copies(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Copies on the CPU. They are in the memory of the copies that the last call returned, which must not be needed any more."""
        known, self._kept = self._kept, {}
        # Outside inference mode: a tensor that is made inside it can never be written to outside.
        with torch.inference_mode(False), torch.no_grad():
            for name, tensor in tensors.items():
                kept = known.pop(name, None)
                if kept is None or kept.shape != tensor.shape or kept.dtype != tensor.dtype:
                    kept = torch_memory.new_memory(tensor)
                self._kept[name] = kept.copy_(tensor.detach())
        return dict(self._kept)

    def clear(self) -> None:
        self._kept = {}


def as_tensors(values: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Tensors, and arrays of numpy as tensors of the same memory."""
    return {name: value if isinstance(value, torch.Tensor) else _of_array(value) for name, value in values.items()}


def _of_array(array: Any) -> torch.Tensor:
    import numpy as np

    from .._tensors import dtypes

    dtype = dtypes.torch_dtype(dtypes.NAME_OF_NUMPY[array.dtype.name])
    values = np.ascontiguousarray(array)
    if not values.flags.writeable:  # torch has no read-only tensors
        values = values.copy()
    return torch.from_numpy(values.reshape(-1).view(np.uint8)).view(dtype).view(array.shape)

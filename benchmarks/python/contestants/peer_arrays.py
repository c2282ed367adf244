"""What numpy and torch do to arrays in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from benchmarks.python.contestants.base import Transforms

if TYPE_CHECKING:
    import torch


class Numpy(Transforms):
    name = "numpy"

    def transpose(self, matrix: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(matrix.T)

    def cast(self, matrix: np.ndarray, dtype: str) -> np.ndarray:
        return matrix.astype({"F16": np.float16}[dtype])


class Torch(Transforms):
    name = "torch"
    modules = ("torch",)

    def accept_matrix(self, matrix: np.ndarray) -> torch.Tensor:
        import torch

        return torch.from_numpy(matrix)

    def transpose(self, matrix: torch.Tensor) -> torch.Tensor:
        return matrix.t().contiguous()

    def cast(self, matrix: torch.Tensor, dtype: str) -> Any:
        import torch

        return matrix.to({"F16": torch.float16, "BF16": torch.bfloat16}[dtype])


CONTESTANTS = [Numpy(), Torch()]

"""Tensors whose storages no longer hold them."""

from __future__ import annotations

import torch


def shrunk() -> torch.Tensor:
    tensor = torch.ones(8)
    tensor.untyped_storage().resize_(16)
    return tensor


def freed(offset: int) -> torch.Tensor:
    tensor = torch.ones(8)[offset:]
    tensor.untyped_storage().resize_(0)
    return tensor

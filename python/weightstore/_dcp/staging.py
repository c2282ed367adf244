"""Copies of a state dict for saves in the background, in memory that is kept for the next save. Imports torch."""

from __future__ import annotations

import copy
import weakref
from typing import Any

import torch
from torch.distributed.checkpoint.staging import AsyncStager
from torch.distributed.tensor import DTensor

from .._tensors import torch_memory


class _Staged(dict[Any, Any]):
    """A staged state dict. A save holds it as long as it needs the memory."""

    __slots__ = ("__weakref__",)


class Stager(AsyncStager):
    """Copies state dicts into memory of its own, for `dcp.async_save(..., async_stager=...)`. The memory is used again by the
    next copy, unless a save still needs it: then the next copy gets new memory. A `StorageWriter` is a stager, too; share one
    `Stager` if you make a new `StorageWriter` for every save.

    `close` gives the memory back.
    """

    _synchronize_after_execute = False

    def __init__(self) -> None:
        self._kept: dict[tuple[Any, ...], torch.Tensor] = {}
        self._last: weakref.ref[_Staged] | None = None

    def stage(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        """The same state, with every tensor on the CPU in memory of its own. A later change of a tensor does not show."""
        if self._last is not None and self._last() is not None:
            self._kept = {}
        known, self._kept = self._kept, {}
        # Outside inference mode: a tensor that is made inside it can never be written to outside.
        with torch.inference_mode(False), torch.no_grad():
            staged = _Staged({key: self._copy(value, (key,), known) for key, value in state_dict.items()})
        self._last = weakref.ref(staged)
        return staged

    def synchronize_staging(self) -> None:
        """Does nothing: `stage` returns when the copy is complete."""

    def close(self) -> None:
        """Gives the memory back, as soon as no save needs it."""
        self._kept = {}

    def _copy(self, value: Any, path: tuple[Any, ...], known: dict[tuple[Any, ...], torch.Tensor]) -> Any:
        if isinstance(value, DTensor):
            local = self._tensor(value.to_local(), path, known)
            return DTensor.from_local(
                local,
                value.device_mesh,
                value.placements,
                run_check=False,
                shape=value.shape,
                stride=value.stride(),
            )
        if isinstance(value, torch.Tensor):
            if type(value) in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
                return self._tensor(value, path, known)
            return copy.deepcopy(value)
        if isinstance(value, dict):
            items = {key: self._copy(each, (*path, key), known) for key, each in value.items()}
            return items if type(value) is dict else _like(value, items)
        if type(value) in (list, tuple):
            return type(value)(self._copy(each, (*path, number), known) for number, each in enumerate(value))
        return copy.deepcopy(value)

    def _tensor(
        self, tensor: torch.Tensor, path: tuple[Any, ...], known: dict[tuple[Any, ...], torch.Tensor]
    ) -> torch.Tensor:
        values = tensor.detach()
        kept = known.get(path)
        if kept is None or kept.shape != values.shape or kept.dtype != values.dtype:
            kept = torch_memory.new_memory(values)
        kept.copy_(values)
        self._kept[path] = kept
        return kept


def _like(value: dict[Any, Any], items: dict[Any, Any]) -> Any:
    """A mapping of the same class; a plain dict where the class cannot be made of items."""
    result = copy.copy(value)
    for key, item in items.items():
        result[key] = item
    return result

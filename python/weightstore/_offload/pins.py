"""Which weights of an offloaded module stay in memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from .. import errors
from .._tensor_roles import pinned_names
from .block import Seat


def pinned_slots(
    pinned: Iterable[Any], seats: list[Seat], blocks: dict[str, torch.nn.Module], model: torch.nn.Module
) -> list[int]:
    """Slots of the pager. Entries are names of parameters, patterns and roles. "embeddings" are all nn.Embedding layers, and
    "head" is what the model gives as its output embeddings; where a model has neither, names decide."""
    if isinstance(pinned, str):
        raise TypeError(f"pinned must be a list; write [{pinned!r}] for one entry")
    by_name = {seat.name: seat for seat in seats}
    slots: dict[int, None] = {}
    for entry in pinned:
        if not isinstance(entry, str):
            raise TypeError(f"pinned must hold names of parameters, patterns or roles, not {errors.typed(entry)}")
        owners = _owners(entry, model)
        names = [seat.name for seat in seats if any(seat.owner is owner for owner in owners)]
        for name in names or pinned_names([entry], list(by_name)):
            if name not in by_name:
                raise errors.make(
                    "not_found",
                    f"pinned: the module has no parameter {name!r} with a tensor in the file",
                    format="pager",
                )
            slots.update(dict.fromkeys(by_name[name].weight.slots))
    return list(slots)


def _owners(role: str, model: torch.nn.Module) -> list[torch.nn.Module]:
    if role == "embeddings":
        return [module for module in model.modules() if isinstance(module, (torch.nn.Embedding, torch.nn.EmbeddingBag))]
    if role == "head":
        head = getattr(model, "get_output_embeddings", lambda: None)()
        return [head] if isinstance(head, torch.nn.Module) else []
    return []

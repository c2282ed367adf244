"""Which tensors of a module are meant, and the layers they belong to."""

from __future__ import annotations

from typing import Any

from .adapters import ModuleAdapter
from .filter import PathFilter, nothing_matches
from .layers import LayerTypes, check_layers
from .slots import Slot, slots_of


def choose(
    module: Any,
    filter: PathFilter | None,
    adapter: ModuleAdapter | None,
    types: LayerTypes | None,
    *,
    refuse_none: str | None,
) -> tuple[list[Slot], list[Slot]]:
    """All tensors of a module, and those of them that the filter lets through, with the layer types that the adapter needs.

    refuse_none: "saved" or "loaded": raise an error with this word if the filter matches nothing. None: it may.
    """
    slots = slots_of(module)
    if types is not None:
        types.assign(slots)
    chosen = [slot for slot in slots if filter is None or filter.matches(slot.path, _containers(slot))]
    if refuse_none is not None and filter is not None and slots and not chosen:
        raise nothing_matches(filter, [slot.path for slot in slots], refuse_none)
    if adapter is not None:
        check_layers(chosen, adapter)
    return slots, chosen


def _containers(slot: Slot) -> tuple[str, ...]:
    return getattr(slot.value, "containers", ()) or slot.containers

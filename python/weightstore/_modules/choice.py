"""Which tensors of a module are meant, and the layers they belong to."""

from __future__ import annotations

from typing import Any

from .adapters import ModuleAdapter
from .filter import PathFilter, nothing_matches
from .layers import LayerTypes, check_layers
from .places import Place, places_of


def choose(
    module: Any,
    filter: PathFilter | None,
    adapter: ModuleAdapter | None,
    types: LayerTypes | None,
    *,
    refuse_none: str | None,
) -> tuple[list[Place], list[Place]]:
    """All tensors of a module, and those of them that the filter lets through, with the layer types that the adapter needs.

    refuse_none: "saved" or "loaded": raise an error with this word if the filter matches nothing. None: it may.
    """
    places = places_of(module)
    if types is not None:
        types.assign(places)
    chosen = [place for place in places if filter is None or filter.matches(place.path, _containers(place))]
    if refuse_none is not None and filter is not None and places and not chosen:
        raise nothing_matches(filter, [place.path for place in places], refuse_none)
    if adapter is not None:
        check_layers(chosen, adapter)
    return places, chosen


def _containers(place: Place) -> tuple[str, ...]:
    return getattr(place.value, "containers", ()) or place.containers

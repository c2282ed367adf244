"""Which tensors of a module are meant, and the layers they belong to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .adapters import ModuleAdapter
from .filter import PathFilter, nothing_matches
from .layers import LayerTypes, check_layers
from .packed_layers import packed_tensors
from .places import Place, places_of


def places_with_layers(module: Any, types: LayerTypes | None) -> list[Place]:
    """All tensors of a module, with the layer types that the caller has given, and the parts of those that are packed."""
    places = places_of(module)
    if types is not None:
        types.assign(places)
    packed = packed_tensors((place.path, place.layer) for place in places)
    for place in places if packed else ():
        place.packed = packed.get(place.path)
    return places


def choose(
    places: list[Place],
    seen: Mapping[str, str],
    filter: PathFilter | None,
    adapter: ModuleAdapter | None,
    *,
    refuse_none: str | None,
) -> list[Place]:
    """The tensors that the filter lets through. Raises if the adapter needs the layer of one and it is not known.

    seen: by their paths, the names that the filter sees of tensors where it does not see the paths.
    refuse_none: "saved" or "loaded": raise an error with this word if the filter matches nothing. None: it may.
    """
    chosen = places
    if filter is not None:
        chosen = [place for place in places if filter.matches(seen.get(place.path, place.path), _containers(place))]
        if refuse_none is not None and places and not chosen:
            names = [seen.get(place.path, place.path) for place in places]
            with_variants = [place.path for place in places if filter.matches(place.path, _containers(place))]
            raise nothing_matches(filter, names, refuse_none, with_variants)
    if adapter is not None:
        check_layers(chosen, adapter)
    return chosen


def _containers(place: Place) -> tuple[str, ...]:
    return getattr(place.value, "containers", ()) or place.containers

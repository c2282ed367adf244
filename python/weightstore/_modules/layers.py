"""Which layer a tensor belongs to, where the module itself does not say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from .. import errors
from .places import NO_LAYER, Place, layer_name
from .regex import compile_regex

if TYPE_CHECKING:
    from .adapters import ModuleAdapter

Types = Mapping[str, str | type | None]
"""Patterns of layer paths to the types of these layers: {"fc": "Linear", r"blocks\\.\\d+\\.norm": "LayerNorm"}.

A path is a tensor's name without its last component, and a pattern matches the whole path. The first pattern that matches
counts. A type is the name of a layer's class, the class, or None for a layer that adapters leave as it is.
"""

_SHOWN = 10


class LayerTypes:
    """The types that a caller has given."""

    def __init__(self, types: Types, known: Iterable[str]) -> None:
        """known: the names that the adapter looks for. A name that differs from these only in case or underscores is an
        error."""
        if not isinstance(types, Mapping):
            raise TypeError(f"types maps patterns of layer paths to layer types; it is {errors.typed(types)}")
        names = sorted(known)
        self._rules = [(compile_regex(pattern), _name_of(layer, names)) for pattern, layer in types.items()]

    def assign(self, places: list[Place]) -> None:
        """Sets the layers of all places that a pattern matches. A pattern that matches no layer is an error."""
        owners = dict.fromkeys(owner_of(place.path) for place in places)
        unused = [rule.text for rule, _ in self._rules if not any(map(rule.compiled.fullmatch, owners))]
        if unused and places:
            raise errors.make(
                "invalid_argument",
                f"types: no layer has a path that {unused[0]!r} matches as a whole; the layers are {_first(map(repr, owners))}",
            )
        for place in places:
            owner = owner_of(place.path)
            for rule, layer in self._rules:
                if rule.compiled.fullmatch(owner):
                    place.layer = layer
                    break


def make_layer_types(types: Types | None, adapter: ModuleAdapter) -> LayerTypes | None:
    return None if types is None else LayerTypes(types, adapter.layer_names)


def check_layers(places: Iterable[Place], adapter: ModuleAdapter) -> None:
    """Raises if the adapter needs the layers of these tensors, and one of them is not known."""
    if not adapter.needs_types:
        return
    unknown: dict[str, list[str]] = {}
    for place in places:
        if place.layer is None:
            unknown.setdefault(owner_of(place.path), []).append(place.path.rpartition(".")[2])
    if unknown:
        shown = _first(f"{owner!r} ({', '.join(names)})" for owner, names in unknown.items())
        raise errors.make(
            "invalid_argument",
            f"{adapter!r} changes tensors by the type of their layer, and these layers have none, because arrays and files "
            f"do not say what layers they belong to: {shown}. Use a torch.nn.Module, or say what the layers are: "
            "types={'fc': 'Linear', r'blocks\\.\\d+\\.norm': 'LayerNorm'}, with None for layers that stay as they are",
        )


def owner_of(path: str) -> str:
    return path.rpartition(".")[0]


def _name_of(layer: str | type | None, known: Sequence[str]) -> str:
    if layer is None:
        return NO_LAYER
    if isinstance(layer, type):
        return layer_name(layer)
    if not isinstance(layer, str) or not layer:
        raise TypeError(f"a layer type is a class, the name of a class, or None; it is {layer!r}")
    meant = [name for name in known if name.lower() == layer.replace("_", "").lower()]
    if meant and layer not in meant:
        raise errors.make("invalid_argument", f"types: {layer!r} is not a layer type; did you mean {meant[0]!r}?")
    return layer


def _first(items: Iterable[str]) -> str:
    shown = list(items)
    more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
    return ", ".join(shown[:_SHOWN]) + more

"""Layers whose matrices torch.nn packs into one, and Burn keeps in parts: attention, LSTM and GRU."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Packed:
    """A tensor of such a layer: its name in the layer, and the names of its parts in Burn's layer, in the order of the rows. Without
    parts, Burn's layer has no such parameter."""

    name: str
    parts: tuple[str, ...]


def _attention_parts() -> dict[str, tuple[str, ...]]:
    parts: dict[str, tuple[str, ...]] = {
        f"{name[0]}_proj_weight": (f"{name}.weight",) for name in ("query", "key", "value")
    }
    for kind in ("weight", "bias"):
        parts[f"in_proj_{kind}"] = (f"query.{kind}", f"key.{kind}", f"value.{kind}")
        parts[f"out_proj.{kind}"] = (f"output.{kind}",)
    return parts | {"bias_k": (), "bias_v": ()}


_ATTENTION = _attention_parts()
# The gates of a recurrent layer, in the order in which torch.nn packs them.
_GATES = {
    "LSTM": ("input_gate", "forget_gate", "cell_gate", "output_gate"),
    "GRU": ("reset_gate", "update_gate", "new_gate"),
}
_RECURRENT = re.compile(r"(weight|bias)_(ih|hh|hr)_l([0-9]+)(_reverse)?")
_TRANSFORMS = {"ih": "input_transform", "hh": "hidden_transform"}

PACKED_LAYERS = frozenset({"MultiheadAttention", *_GATES})


def packed_tensors(tensors: Iterable[tuple[str, str | None]]) -> dict[str, Packed]:
    """Those of the tensors that belong to a packed layer, by their paths. tensors: paths, and the types of their layers."""
    layers: dict[str, tuple[str, list[str]]] = {}
    outputs: list[tuple[str, str]] = []
    for path, layer in tensors:
        owner, _, name = path.rpartition(".")
        if layer in PACKED_LAYERS:
            layers.setdefault(owner, (layer, []))[1].append(name)
        elif owner == "out_proj" or owner.endswith(".out_proj"):
            outputs.append((owner[: -len(".out_proj")], f"out_proj.{name}"))
    for above, name in outputs:  # out_proj is a layer of its own inside the attention
        if above in layers and layers[above][0] == "MultiheadAttention":
            layers[above][1].append(name)
    return {
        f"{owner}.{name}" if owner else name: Packed(name, parts)
        for owner, (layer, names) in layers.items()
        for name in names
        if (parts := _parts(layer, name, names)) is not None
    }


def _parts(layer: str, name: str, names: list[str]) -> tuple[str, ...] | None:
    """None for a tensor that the layer of torch.nn does not have. names: all tensors of the layer."""
    if layer == "MultiheadAttention":
        return _ATTENTION.get(name)
    found = _RECURRENT.fullmatch(name)
    if found is None:
        return None
    kind, transform, depth, reverse = found.groups()
    if transform == "hr":
        return ()
    # Burn's layers are not stacked; a list of them is.
    prefix = f"{depth}." if "weight_ih_l1" in names else ""
    if any(other.endswith("_reverse") for other in names):
        prefix += "reverse." if reverse else "forward."
    return tuple(f"{prefix}{gate}.{_TRANSFORMS[transform]}.{kind}" for gate in _GATES[layer])

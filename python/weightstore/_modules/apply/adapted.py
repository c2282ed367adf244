"""What an adapter makes of stored tensors for one parameter."""

from __future__ import annotations

from ..adapters import ModuleAdapter, several
from ..places import Place
from ..snapshot import TensorSnapshot
from .result import AdapterError


def adapted_for(
    place: Place, stored: list[TensorSnapshot], adapter: ModuleAdapter | None, *, is_joined: bool
) -> TensorSnapshot | None:
    """The tensor for a parameter; None if the adapter has none for it. Raises AdapterError.

    stored: one tensor; or, if is_joined, the parts that a packed parameter is made of.
    """
    first = stored[0]
    asked = TensorSnapshot(
        place.path, first._values, containers=place.containers, param_id=first.param_id, layer=place.layer
    )
    if adapter is None:
        return asked
    try:
        if is_joined:
            made = several(adapter._join(asked, [part._in_layer("Linear") for part in stored]))
        else:
            made = several(adapter.adapt(asked))
    except Exception as error:
        raise AdapterError(place.path, f"{type(error).__name__}: {error}") from error
    if len(made) > 1:
        raise AdapterError(place.path, "the adapter made several tensors for one parameter")
    if made and len(stored) > 1:
        made[0]._part_ids = tuple(part.param_id for part in stored)
    return made[0] if made else None

"""Takes the tensors out of any module, and puts others in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .. import errors
from .._files.handle import TensorHandle
from .._files.progress import Progress, reporting
from .._tensors.frameworks import is_lazy
from . import param_ids
from .adapters import ModuleAdapter, as_adapter, several
from .apply.commit import commit
from .apply.plan import DTypePolicy, Rules, check_policy, make_plan
from .apply.result import ApplyResult
from .choice import choose, places_with_layers
from .filter import PathFilter, check_filter
from .layers import LayerTypes, Types, make_layer_types
from .match import names_without_variants
from .places import Place
from .snapshot import TensorSnapshot
from .values.original import values_of


def collect(
    module: Any,
    filter: PathFilter | None = None,
    adapter: ModuleAdapter | type[ModuleAdapter] | None = None,
    skip_enum_variants: bool = False,
    *,
    types: Types | None = None,
) -> list[TensorSnapshot]:
    """Snapshots of a module's tensors, in the module's order. Nothing is read or copied.

    module: a torch.nn.Module (parameters and persistent buffers), or a nested mapping of arrays and tensors.
    filter: sees the module's own names. The adapter is applied to what the filter lets through.
    skip_enum_variants: leave enum variants out of the names, also of those that the filter sees. A variant is a component in
        CamelCase that is alone in its place.
    types: the types of layers, for an adapter that needs them and a module that does not have them: {"fc": "Linear"}. A
        pattern matches the whole path of a layer, and None is a layer that the adapter leaves as it is.
    """
    check_filter(filter)
    made = None if adapter is None else as_adapter(adapter)
    return [
        snapshot
        for _, snapshot in collect_with_origins(module, filter, made, skip_enum_variants, _layer_types(types, made))
    ]


def collect_with_origins(
    module: Any,
    filter: PathFilter | None,
    adapter: ModuleAdapter | None,
    skip_enum_variants: bool,
    types: LayerTypes | None,
    *,
    refuses_nothing: bool = False,
) -> list[tuple[str, TensorSnapshot]]:
    """What collect() gives, with the names that the tensors have in the module.

    refuses_nothing: a filter that matches nothing of the module is an error.
    """
    places = places_with_layers(module, types)
    names = names_without_variants([place.path for place in places]) if skip_enum_variants else {}
    chosen = choose(places, names, filter, adapter, refuse_none="saved" if refuses_nothing else None)
    found = []
    for place in chosen:
        snapshot = snapshot_of(place)
        snapshot.full_path = names.get(place.path, place.path)
        adapted = snapshot if adapter is None else adapter.adapt(snapshot)
        found += [(place.path, made) for made in several(adapted)]
    return found


def snapshot_of(place: Place) -> TensorSnapshot:
    snapshot = _plain_snapshot_of(place)
    if place.packed is not None:
        snapshot._packed = place.packed
        # The ids of parts are with the layer, under the parts' names.
        before = place.path.removesuffix(place.packed.name)
        parts = place.packed.parts
        one = len(parts) == 1 and snapshot.param_id is not None
        snapshot._part_ids = tuple(
            snapshot.param_id if one else param_ids.id_of(place.owner, part, before + part) for part in parts
        )
    return snapshot


def _plain_snapshot_of(place: Place) -> TensorSnapshot:
    if isinstance(place.value, TensorSnapshot):
        return place.value.renamed(place.path)._in_layer(place.layer)
    if is_lazy(place.value):
        raise errors.make("no_data", "the parameter is not initialized: it has no shape yet", tensor=place.path)
    handle_id = place.value.param_id if isinstance(place.value, TensorHandle) else None
    return TensorSnapshot(
        place.path,
        values_of(place.value, place.path),
        containers=place.containers,
        param_id=param_ids.id_of(place.owner, place.key, place.path) if handle_id is None else handle_id,
        layer=place.layer,
    )


def _layer_types(types: Types | None, adapter: ModuleAdapter | None) -> LayerTypes | None:
    if types is not None and adapter is None:
        raise errors.make("invalid_argument", "types= says what layers an adapter works on; there is no adapter")
    return None if adapter is None else make_layer_types(types, adapter)


def apply(
    module: Any,
    snapshots: Iterable[TensorSnapshot] | Mapping[str, TensorSnapshot],
    filter: PathFilter | None = None,
    adapter: ModuleAdapter | type[ModuleAdapter] | None = None,
    skip_enum_variants: bool = False,
    *,
    types: Types | None = None,
    dtype_policy: DTypePolicy | None = None,
    zero_copy: bool = False,
    progress: Progress | bool | None = None,
) -> ApplyResult:
    """Sets the tensors of a module from snapshots of the same names; of several with one name the last counts, and in a mapping
    the keys are the names. What does not fit is reported in the result and left as it is, and so is what is missing.

    types: the types of the module's layers, as for collect().
    dtype_policy: "cast" converts values to the parameter's type, "strict" makes a difference an error, "adopt" gives the
        parameter the snapshot's type. Unless given, values of another kind (integers for a parameter of floats) are an error;
        of the same kind it is "adopt" where the adapter changed the type, else "cast".
    zero_copy: parameters become views of the mapped file where a snapshot is of one.
    """
    check_filter(filter)
    by_name = named(snapshots)
    made = None if adapter is None else as_adapter(adapter)
    rules = Rules(
        filter=filter,
        adapter=made,
        types=_layer_types(types, made),
        skip_enum_variants=skip_enum_variants,
        dtype_policy=check_policy(dtype_policy),
    )
    plan = make_plan(module, by_name, rules)
    with reporting(progress) as report:
        commit(plan, zero_copy=zero_copy, progress=report)
    return plan.result


def named(snapshots: Iterable[TensorSnapshot] | Mapping[str, TensorSnapshot]) -> dict[str, TensorSnapshot]:
    """Snapshots by name: a mapping's keys, else their full_path, of which the last counts."""
    found = dict(snapshots) if isinstance(snapshots, Mapping) else {_name_of(s): s for s in snapshots}
    for snapshot in found.values():
        _name_of(snapshot)
    return found


def _name_of(snapshot: TensorSnapshot) -> str:
    if not isinstance(snapshot, TensorSnapshot):
        raise TypeError(f"expected snapshots, such as collect() gives, not {type(snapshot).__name__}")
    return snapshot.full_path

"""What can be done with any module: taking its tensors, giving it others, saving and loading it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from .. import errors
from .._files.handle import TensorHandle
from .._files.progress import Progress, reporting
from .._tensors.frameworks import is_lazy
from . import param_ids
from .adapters import ModuleAdapter, as_adapter
from .apply.commit import commit
from .apply.plan import DTypePolicy, Rules, check_policy, make_plan
from .apply.result import ApplyResult
from .choice import choose
from .filter import PathFilter, check_filter
from .layers import LayerTypes, Types, make_layer_types
from .match import names_without_variants
from .slots import Slot
from .snapshot import TensorSnapshot
from .values import values_of

if TYPE_CHECKING:
    from .module_store import ModuleStore


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
    skip_enum_variants: leave enum variants out of the names: components in CamelCase that are alone in their place.
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
    slots, chosen = choose(module, filter, adapter, types, refuse_none="saved" if refuses_nothing else None)
    names = names_without_variants([slot.path for slot in slots]) if skip_enum_variants else {}
    found = []
    for slot in chosen:
        snapshot: TensorSnapshot | None = _snapshot_of(slot)
        assert snapshot is not None
        snapshot.full_path = names.get(slot.path, slot.path)
        if adapter is not None:
            snapshot = adapter.adapt(snapshot)
        if snapshot is not None:
            found.append((slot.path, snapshot))
    return found


def _snapshot_of(slot: Slot) -> TensorSnapshot:
    if isinstance(slot.value, TensorSnapshot):
        return slot.value.renamed(slot.path)._in_layer(slot.layer)
    if is_lazy(slot.value):
        raise errors.make("no_data", "the parameter is not initialized: it has no shape yet", tensor=slot.path)
    handle_id = slot.value.param_id if isinstance(slot.value, TensorHandle) else None
    return TensorSnapshot(
        slot.path,
        values_of(slot.value, slot.path),
        containers=slot.containers,
        param_id=param_ids.id_of(slot.owner, slot.key, slot.path) if handle_id is None else handle_id,
        layer=slot.layer,
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
        parameter the snapshot's type. Unless given: "adopt" where the adapter changed the type, else "cast".
    zero_copy: parameters become views of the mapped file where a snapshot is of one.
    """
    check_filter(filter)
    sources = named(snapshots)
    made = None if adapter is None else as_adapter(adapter)
    rules = Rules(
        filter=filter,
        adapter=made,
        types=_layer_types(types, made),
        skip_enum_variants=skip_enum_variants,
        dtype_policy=check_policy(dtype_policy),
    )
    plan = make_plan(module, sources, rules)
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


def save_into(module: Any, store: ModuleStore) -> None:
    """The same as store.collect_from(module)."""
    store.collect_from(module)


def load_from(module: Any, store: ModuleStore) -> ApplyResult:
    """The same as store.apply_to(module)."""
    return store.apply_to(module)


class ModuleSnapshot:
    """Gives a module collect, apply, save_into and load_from as methods: `class Net(ModuleSnapshot, torch.nn.Module)`.

    It comes before torch.nn.Module, which has an `apply` of its own; that one is still there when `apply` is given a
    function.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        bases = cls.__mro__
        if any(base.__name__ == "Module" and "apply" in vars(base) for base in bases[: bases.index(ModuleSnapshot)]):
            raise TypeError(f"{cls.__name__}: name ModuleSnapshot before torch.nn.Module in the list of base classes")

    def collect(
        self,
        filter: PathFilter | None = None,
        adapter: ModuleAdapter | type[ModuleAdapter] | None = None,
        skip_enum_variants: bool = False,
        *,
        types: Types | None = None,
    ) -> list[TensorSnapshot]:
        return collect(self, filter, adapter, skip_enum_variants, types=types)

    def apply(
        self,
        snapshots: Iterable[TensorSnapshot] | Mapping[str, TensorSnapshot] | Callable[[Any], Any],
        filter: PathFilter | None = None,
        adapter: ModuleAdapter | type[ModuleAdapter] | None = None,
        skip_enum_variants: bool = False,
        **options: Any,
    ) -> Any:
        """apply() of this package; given a function, the apply() of torch.nn.Module."""
        if callable(snapshots):
            return super().apply(snapshots)  # type: ignore[misc]
        return apply(self, snapshots, filter, adapter, skip_enum_variants, **options)

    def save_into(self, store: ModuleStore) -> None:
        save_into(self, store)

    def load_from(self, store: ModuleStore) -> ApplyResult:
        return load_from(self, store)

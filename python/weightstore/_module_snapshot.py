"""What can be done with any module: taking its tensors, giving it others, saving and loading it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from . import _apply, _commit, _module
from ._adapters import ModuleAdapter, as_adapter
from ._apply_result import ApplyResult
from ._filter import PathFilter, check_filter
from ._match import without_variants
from ._progress import Progress, reporting
from ._snapshot import TensorSnapshot

if TYPE_CHECKING:
    from .stores import ModuleStore


def collect(
    module: Any,
    filter: PathFilter | None = None,
    adapter: ModuleAdapter | type[ModuleAdapter] | None = None,
    skip_enum_variants: bool = False,
) -> list[TensorSnapshot]:
    """Snapshots of a module's tensors, in the module's order. Nothing is read or copied.

    module: a torch.nn.Module (parameters and persistent buffers), or a nested mapping of arrays and tensors.
    filter: sees the module's own names. The adapter is applied to what the filter lets through.
    skip_enum_variants: leave components in CamelCase out of the names.
    """
    check_filter(filter)
    adapt = None if adapter is None else as_adapter(adapter).adapt
    snapshots = []
    for slot in _module.slots(module):
        containers = getattr(slot.value, "containers", ()) or slot.containers
        if filter is not None and not filter.matches(slot.path, containers):
            continue
        snapshot: TensorSnapshot | None = _module.snapshot_of(slot)
        assert snapshot is not None
        if skip_enum_variants:
            snapshot.full_path = without_variants(snapshot.full_path)
        if adapt is not None:
            snapshot = adapt(snapshot)
        if snapshot is not None:
            snapshots.append(snapshot)
    return snapshots


def apply(
    module: Any,
    snapshots: Iterable[TensorSnapshot] | Mapping[str, TensorSnapshot],
    filter: PathFilter | None = None,
    adapter: ModuleAdapter | type[ModuleAdapter] | None = None,
    skip_enum_variants: bool = False,
    *,
    dtype_policy: _apply.DTypePolicy | None = None,
    zero_copy: bool = False,
    progress: Progress | bool | None = None,
) -> ApplyResult:
    """Sets the tensors of a module from snapshots of the same names; of several with one name the last counts, and in a mapping
    the keys are the names. What does not fit is reported in the result and left as it is, and so is what is missing.

    dtype_policy: "cast" converts values to the parameter's type, "strict" makes a difference an error, "adopt" gives the
        parameter the snapshot's type. Unless given: "adopt" where the adapter changed the type, else "cast".
    zero_copy: parameters become views of the mapped file where a snapshot is of one.
    """
    check_filter(filter)
    sources = named(snapshots)
    rules = _apply.Rules(
        filter=filter,
        adapter=None if adapter is None else as_adapter(adapter),
        skip_enum_variants=skip_enum_variants,
        dtype_policy=_apply.check_policy(dtype_policy),
    )
    plan = _apply.make_plan(module, sources, rules)
    with reporting(progress) as report:
        _commit.commit(plan, zero_copy=zero_copy, progress=report)
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
    ) -> list[TensorSnapshot]:
        return collect(self, filter, adapter, skip_enum_variants)

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

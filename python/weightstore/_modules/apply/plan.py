"""Applying tensors to a module, first phase: everything that can be known without reading data."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ... import errors
from ..._tensors import dtypes, frameworks
from ..adapters import ModuleAdapter
from ..choice import choose
from ..filter import PathFilter
from ..layers import LayerTypes
from ..match import match
from ..slots import Slot, can_replace, why_not_a_target
from ..snapshot import TensorSnapshot
from .result import (
    AdapterError,
    ApplyError,
    ApplyResult,
    DTypeMismatch,
    LoadError,
    MissingTensor,
    ShapeMismatch,
)

DTypePolicy = Literal["cast", "strict", "adopt"]

# Types that are shown alike: reading one where the other is expected converts nothing.
_SHOWN_AS = {"BoolU8": "BOOL", "BoolU32": "BOOL", "Flex32": "F32"}


@dataclass(slots=True)
class Rules:
    """How names and types are brought together."""

    filter: PathFilter | None = None
    adapter: ModuleAdapter | None = None
    types: LayerTypes | None = None
    skip_enum_variants: bool = False
    match_indices: bool = False
    dtype_policy: DTypePolicy | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)  # names that a file lacks to those that stand for them


@dataclass(slots=True)
class Job:
    """One tensor, and the slots it goes to: several when parameters are tied."""

    snapshot: TensorSnapshot
    slots: list[Slot]
    converts: bool  # the slot keeps its type, which is not the tensor's
    adopts: bool  # the slot takes the tensor's type


@dataclass(slots=True)
class Plan:
    result: ApplyResult
    jobs: list[Job]
    new_ids: list[tuple[Slot, int]]


def make_plan(
    module: Any, sources: Mapping[str, TensorSnapshot], rules: Rules, *, refuses_nothing: bool = False
) -> Plan:
    """refuses_nothing: a filter that matches nothing of the module is an error."""
    refuse_none = "loaded" if refuses_nothing else None
    slots, chosen = choose(module, rules.filter, rules.adapter, rules.types, refuse_none=refuse_none)
    wanted = set(map(id, chosen))
    unwanted = {slot.path for slot in slots if id(slot) not in wanted}
    return _Planner(slots, unwanted, sources, rules).plan()


class _Planner:
    def __init__(
        self, slots: list[Slot], unwanted: set[str], sources: Mapping[str, TensorSnapshot], rules: Rules
    ) -> None:
        self._slots = slots
        self._unwanted = unwanted
        self._sources = sources
        self._rules = rules
        self._result = ApplyResult()
        self._used: set[str] = set()
        self._ties: dict[Hashable, list[Slot]] = {}
        for slot in slots:
            self._ties.setdefault(frameworks.identity(slot.value), []).append(slot)
        self._others = {slot.path: self._other_name(slot) for slot in slots} if rules.adapter else {}
        self._matched = self._match()

    def plan(self) -> Plan:
        jobs: dict[Hashable, Job] = {}
        absent: list[Slot] = []
        failed: set[Hashable] = set()
        applied: set[str] = set()
        new_ids = []
        for slot in self._slots:
            group = frameworks.identity(slot.value)
            try:
                job = self._plan(slot, group)
            except ApplyError as error:
                self._result.errors.append(error.with_traceback(None))  # whose frames would keep the module alive
                failed.add(group)
                continue
            if job is None:
                absent.append(slot)
            elif job is not _SKIPPED:
                # Of several tensors for tied parameters the last counts, as in load_state_dict().
                jobs[group] = job
                applied.add(slot.path)
                if job.snapshot.param_id is not None:
                    new_ids.append((slot, job.snapshot.param_id))
        for slot in absent:
            group = frameworks.identity(slot.value)
            if group in jobs:
                applied.add(slot.path)
            elif group not in failed and not self._is_optional(slot):
                self._result.missing.append(MissingTensor(slot.path, ".".join(slot.containers)))
        self._result.applied = [slot.path for slot in self._slots if slot.path in applied]
        self._result.skipped.sort()
        self._result.missing.sort()
        self._result.unused = sorted(name for name in self._sources if name not in self._used)
        return Plan(self._result, list(jobs.values()), new_ids)

    # ---- names ---------------------------------------------------------------------------------------------------

    def _other_name(self, slot: Slot) -> str | None:
        """The path under which the adapter would look, too."""
        adapter = self._rules.adapter
        if adapter is None or not slot.layer:
            return None
        owner, dot, name = slot.path.rpartition(".")
        other = adapter.get_alternative_param_name(name, slot.layer)
        return None if other is None else owner + dot + other

    def _is_optional(self, slot: Slot) -> bool:
        adapter = self._rules.adapter
        if adapter is None or not slot.layer:
            return False
        return adapter.is_optional(slot.path.rpartition(".")[2], slot.layer)

    def _match(self) -> dict[str, str] | None:
        wanted = [slot.path for slot in self._slots]
        if all(path in self._sources for path in wanted):
            return None
        return match(
            self._sources,
            [*wanted, *(other for other in self._others.values() if other is not None)],
            indices=self._rules.match_indices,
            variants=self._rules.skip_enum_variants,
        )

    def _find(self, slot: Slot) -> str | None:
        for name in (slot.path, self._others.get(slot.path)):
            if name is None:
                continue
            found = name if self._matched is None else self._matched.get(name)
            for candidate in (found, self._rules.aliases.get(name)):
                if candidate is not None and candidate in self._sources:
                    return candidate
        return None

    # ---- one parameter -------------------------------------------------------------------------------------------

    def _plan(self, slot: Slot, group: Hashable) -> Job | None:
        name = self._find(slot)
        if name is None:
            return None
        self._used.add(name)
        if slot.path in self._unwanted:
            self._result.skipped.append(slot.path)
            return _SKIPPED
        stored = self._sources[name]
        snapshot = self._adapted(stored, slot)
        if snapshot is None:
            return None
        problem = why_not_a_target(slot)
        if problem is not None:
            raise LoadError(slot.path, problem)
        dtype, shape = frameworks.type_and_shape(slot.value)
        if shape is not None and shape != snapshot.shape:
            text = f"shape {list(snapshot.shape)} was found where {list(shape)} is expected"
            raise ShapeMismatch(slot.path, shape, snapshot.shape, text)
        return self._fit(slot, self._ties[group], snapshot, dtype, stored.dtype != snapshot.dtype)

    def _adapted(self, stored: TensorSnapshot, slot: Slot) -> TensorSnapshot | None:
        asked = TensorSnapshot(
            slot.path, stored._values, containers=slot.containers, param_id=stored.param_id, layer=slot.layer
        )
        if self._rules.adapter is None:
            return asked
        try:
            return self._rules.adapter.adapt(asked)
        except Exception as error:
            raise AdapterError(slot.path, f"{type(error).__name__}: {error}") from error

    def _fit(self, slot: Slot, tied: list[Slot], snapshot: TensorSnapshot, expected: str | None, adapted: bool) -> Job:
        found = snapshot.dtype
        if expected is not None and _SHOWN_AS.get(expected, expected) == _SHOWN_AS.get(found, found):
            return Job(snapshot, tied, False, False)
        policy = self._rules.dtype_policy or ("adopt" if adapted else "cast")
        text = f"type {found} was found where {expected or slot.value.dtype} is expected"
        if policy == "strict":
            raise DTypeMismatch(slot.path, expected, found, text)
        try:
            shown: Any = (dtypes.torch_dtype if frameworks.is_tensor(slot.value) else dtypes.numpy_dtype)(found)
        except TypeError as error:
            raise DTypeMismatch(slot.path, expected, found, f"{text}: {error}") from None
        if policy == "cast":
            if found in ("C32", "C64", "C128") and not _is_complex(slot.value):
                raise DTypeMismatch(slot.path, expected, found, f"{text}, which cannot hold complex numbers")
            return Job(snapshot, tied, True, False)
        if slot.kind == "parameter" and slot.value.requires_grad and not (shown.is_floating_point or shown.is_complex):
            raise DTypeMismatch(slot.path, expected, found, f"{text}, and a trained parameter cannot be {found}")
        if not frameworks.is_tensor(slot.value) and not can_replace(slot):
            raise LoadError(slot.path, f"{text}, and a {type(slot.owner).__name__} cannot hold another array")
        return Job(snapshot, tied, False, True)


_SKIPPED = Job(None, [], False, False)  # type: ignore[arg-type]


def _is_complex(value: Any) -> bool:
    return bool(value.dtype.is_complex) if frameworks.is_tensor(value) else value.dtype.kind == "c"


def check_policy(policy: str | None) -> DTypePolicy | None:
    if policy not in (None, "cast", "strict", "adopt"):
        raise errors.make("invalid_argument", f"dtype_policy is {policy!r}; it is 'cast', 'strict' or 'adopt'")
    return policy  # type: ignore[return-value]

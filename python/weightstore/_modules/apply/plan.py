"""Applying tensors to a module, first phase: everything that can be known without reading data."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ... import errors
from ..._tensors import dtypes, frameworks
from ..adapters import ModuleAdapter
from ..choice import choose, places_with_layers
from ..filter import PathFilter
from ..layers import LayerTypes
from ..match import match, seen_names
from ..packed_layers import Packed
from ..places import Place, can_replace, reason_not_loadable
from ..snapshot import TensorSnapshot
from .adapted import adapted_for
from .prefixes import Renaming, find_renaming
from .result import (
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

# Types whose numbers no real parameter can take, whatever the policy. Quantized types have none until they are dequantized.
_NEVER_CAST = ("C32", "C64", "C128", "QFloat")


@dataclass(slots=True)
class Rules:
    """How names and types are brought together."""

    filter: PathFilter | None = None
    adapter: ModuleAdapter | None = None
    types: LayerTypes | None = None
    skip_enum_variants: bool = False
    match_indices: bool = False
    keeps_indices: Callable[[str], bool] | None = None  # prefixes of lists whose elements keep their numbers
    filter_missing: bool = False  # a parameter that the filter leaves out is skipped, even if nothing is found for it
    dtype_policy: DTypePolicy | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)  # names that a file lacks to those that stand for them
    metadata: Mapping[str, Any] = field(default_factory=dict)  # of the file, for the adapter


@dataclass(slots=True)
class Assignment:
    """One tensor, and the places it goes to: several when parameters are tied."""

    snapshot: TensorSnapshot
    places: list[Place]
    converts: bool  # the place keeps its type, which is not the tensor's
    adopts: bool  # the place takes the tensor's type


@dataclass(slots=True)
class Plan:
    result: ApplyResult
    assignments: list[Assignment]
    new_ids: list[tuple[Place, Any, int]]  # of parameters, and of the parts of packed ones: their keys, and ids


def make_plan(
    module: Any, snapshots: Mapping[str, TensorSnapshot], rules: Rules, *, refuses_nothing: bool = False
) -> Plan:
    """refuses_nothing: a filter that matches nothing of the module is an error."""
    places = places_with_layers(module, rules.types)
    if rules.adapter is not None:
        snapshots = rules.adapter.adapt_file(snapshots, rules.metadata, {place.path for place in places})
    return _Planner(places, snapshots, rules, "loaded" if refuses_nothing else None).plan()


class _Planner:
    def __init__(
        self, places: list[Place], snapshots: Mapping[str, TensorSnapshot], rules: Rules, refuse_none: str | None
    ) -> None:
        self._places = places
        self._snapshots = snapshots
        self._rules = rules
        self._result = ApplyResult()
        self._used: set[str] = set()
        self._ties: dict[Hashable, list[Place]] = {}
        for place in places:
            self._ties.setdefault(frameworks.identity(place.value), []).append(place)
        self._others = {place.path: self._other_name(place) for place in places} if rules.adapter else {}
        joins = rules.adapter is not None and rules.adapter._joins
        self._packed = {place.path: place.packed for place in places if place.packed is not None and joins}
        self._matched = self._match()
        seen: dict[str, str] = {}
        if rules.skip_enum_variants and rules.filter is not None:
            found = {place.path: names[0] for place in places if (names := self._names(place))}
            seen = seen_names([place.path for place in places], snapshots, found)
        wanted = set(map(id, choose(places, seen, rules.filter, rules.adapter, refuse_none=refuse_none)))
        self._unwanted = {place.path for place in places if id(place) not in wanted}

    def plan(self) -> Plan:
        assignments: dict[Hashable, Assignment] = {}
        absent: list[Place] = []
        failed: set[Hashable] = set()
        applied: set[str] = set()
        new_ids = []
        for place in self._places:
            group = frameworks.identity(place.value)
            try:
                assignment = self._plan(place, group)
            except ApplyError as error:
                self._result.errors.append(error.with_traceback(None))  # whose frames would keep the module alive
                failed.add(group)
                continue
            if assignment is None:
                absent.append(place)
            elif assignment is not _SKIPPED:
                # Of several tensors for tied parameters the last counts, as in load_state_dict().
                assignments[group] = assignment
                applied.add(place.path)
                new_ids += self._ids(place, assignment.snapshot)
        for place in absent:
            group = frameworks.identity(place.value)
            if group in assignments:
                applied.add(place.path)
            elif self._rules.filter_missing and place.path in self._unwanted:
                self._result.skipped.append(place.path)
            elif group not in failed and not self._is_optional(place):
                self._result.missing.append(MissingTensor(place.path, ".".join(place.containers)))
        self._result.applied = [place.path for place in self._places if place.path in applied]
        self._result.skipped.sort()
        self._result.missing.sort()
        self._result.unused = sorted(name for name in self._snapshots if name not in self._used)
        self._result.renaming = self._renaming()
        return Plan(self._result, list(assignments.values()), new_ids)

    # ---- names ---------------------------------------------------------------------------------------------------

    def _other_name(self, place: Place) -> str | None:
        """The path under which the adapter would look, too."""
        adapter = self._rules.adapter
        if adapter is None or not place.layer:
            return None
        owner, dot, name = place.path.rpartition(".")
        other = adapter.get_alternative_param_name(name, place.layer)
        return None if other is None else owner + dot + other

    def _is_optional(self, place: Place) -> bool:
        adapter = self._rules.adapter
        if adapter is None or not place.layer:
            return False
        return adapter.is_optional(place.path.rpartition(".")[2], place.layer)

    def _match(self) -> dict[str, str] | None:
        wanted = [place.path for place in self._places]
        if all(path in self._snapshots for path in wanted):
            return None
        return match(
            self._snapshots,
            [*wanted, *(other for other in self._others.values() if other is not None), *self._part_names()],
            indices=self._rules.match_indices,
            variants=self._rules.skip_enum_variants,
            keeps_indices=self._rules.keeps_indices,
        )

    def _part_names(self) -> list[str]:
        return [name for path, packed in self._packed.items() for name in _names_of_parts(path, packed)]

    def _names(self, place: Place) -> list[str]:
        """The stored tensors for a parameter: one, or those of its parts that there are."""
        for name in (place.path, self._others.get(place.path)):
            found = self._find(name)
            if found is not None:
                return [found]
        return [name for name in self._parts(place) if name is not None]

    def _parts(self, place: Place) -> list[str | None]:
        """The stored tensors that a packed parameter is made of, with None for those that are not there."""
        packed = self._packed.get(place.path)
        return [] if packed is None else [self._find(name) for name in _names_of_parts(place.path, packed)]

    def _find(self, name: str | None) -> str | None:
        if name is None:
            return None
        found = name if self._matched is None else self._matched.get(name)
        for candidate in (found, self._rules.aliases.get(name)):
            if candidate is not None and candidate in self._snapshots:
                return candidate
        return None

    def _renaming(self) -> Renaming:
        if not self._result.missing or not self._result.unused:
            return Renaming()
        # An adapter may change the shape on the way.
        knows_shapes = self._rules.adapter is None
        return find_renaming(
            {name: snapshot.shape if knows_shapes else None for name, snapshot in self._snapshots.items()},
            {place.path: frameworks.type_and_shape(place.value)[1] if knows_shapes else None for place in self._places},
            self._result.missing,
            self._result.unused,
        )

    def _ids(self, place: Place, snapshot: TensorSnapshot) -> list[tuple[Place, Any, int]]:
        keys = (place.key,) if len(snapshot._part_ids) < 2 or place.packed is None else place.packed.parts
        ids = snapshot._part_ids if len(keys) > 1 else (snapshot.param_id,)
        return [(place, key, param_id) for key, param_id in zip(keys, ids, strict=True) if param_id is not None]

    # ---- one parameter -------------------------------------------------------------------------------------------

    def _plan(self, place: Place, group: Hashable) -> Assignment | None:
        names = self._names(place)
        if not names:
            return None
        self._used.update(names)
        if place.path in self._unwanted:
            self._result.skipped.append(place.path)
            return _SKIPPED
        stored = [self._snapshots[name] for name in names]
        snapshot = adapted_for(place, stored, self._rules.adapter, is_joined=self._is_joined(place, names))
        if snapshot is None:
            return None
        problem = reason_not_loadable(place)
        if problem is not None:
            raise LoadError(place.path, problem)
        dtype, shape = frameworks.type_and_shape(place.value)
        if self._rules.dtype_policy is None:
            self._check_kind(place, dtype, snapshot._values.dtype)
        if shape is not None and shape != snapshot.shape:
            text = f"shape {list(snapshot.shape)} was found where {list(shape)} is expected"
            raise ShapeMismatch(place.path, shape, snapshot.shape, text)
        return self._fit(place, self._ties[group], snapshot, dtype, stored[0]._values.dtype != snapshot._values.dtype)

    def _is_joined(self, place: Place, names: list[str]) -> bool:
        """Whether these are the parts of a packed parameter. Raises if some are not there."""
        parts = self._parts(place)
        if names != [name for name in parts if name is not None]:
            return False
        if None in parts:
            needed = _names_of_parts(place.path, self._packed[place.path])
            lacks = [name for name, found in zip(needed, parts, strict=True) if found is None]
            text = f"it is made of {', '.join(needed)}; the source lacks {', '.join(lacks)}"
            raise LoadError(place.path, text)
        return True

    def _check_kind(self, place: Place, expected: str | None, found: str) -> None:
        """Raises if the file's numbers are not of the parameter's kind: integers in place of weights are a mistake more often
        than not."""
        if expected is None or found in _NEVER_CAST or dtypes.is_kind_for(found, expected):
            return
        text = f"type {found} was found where {expected} is expected; dtype_policy('cast') converts from one kind to another"
        raise DTypeMismatch(place.path, expected, found, text)

    def _fit(
        self, place: Place, tied: list[Place], snapshot: TensorSnapshot, expected: str | None, adapted: bool
    ) -> Assignment:
        found = snapshot._values.dtype
        if expected is not None and _SHOWN_AS.get(expected, expected) == _SHOWN_AS.get(found, found):
            return Assignment(snapshot, tied, False, False)
        policy = self._rules.dtype_policy or ("adopt" if adapted else "cast")
        text = f"type {found} was found where {expected or place.value.dtype} is expected"
        if policy == "strict":
            raise DTypeMismatch(place.path, expected, found, text)
        try:
            shown: Any = (dtypes.torch_dtype if frameworks.is_tensor(place.value) else dtypes.numpy_dtype)(found)
        except TypeError as error:
            raise DTypeMismatch(place.path, expected, found, f"{text}: {error}") from None
        if policy == "cast":
            if found in _NEVER_CAST and not _is_complex(place.value):
                raise DTypeMismatch(place.path, expected, found, f"{text}, which cannot hold complex numbers")
            return Assignment(snapshot, tied, True, False)
        if (
            place.kind == "parameter"
            and place.value.requires_grad
            and not (shown.is_floating_point or shown.is_complex)
        ):
            raise DTypeMismatch(place.path, expected, found, f"{text}, and a trained parameter cannot be {found}")
        if not frameworks.is_tensor(place.value) and not can_replace(place):
            raise LoadError(place.path, f"{text}, and {errors.typed(place.owner)} cannot hold another array")
        return Assignment(snapshot, tied, False, True)


def _names_of_parts(path: str, packed: Packed) -> list[str]:
    before = path.removesuffix(packed.name)
    return [before + part for part in packed.parts]


_SKIPPED = Assignment(None, [], False, False)  # type: ignore[arg-type]


def _is_complex(value: Any) -> bool:
    return bool(value.dtype.is_complex) if frameworks.is_tensor(value) else value.dtype.kind == "c"


def check_policy(policy: str | None) -> DTypePolicy | None:
    if policy not in (None, "cast", "strict", "adopt"):
        raise errors.make("invalid_argument", f"dtype_policy is {policy!r}; it is 'cast', 'strict' or 'adopt'")
    return policy  # type: ignore[return-value]

"""Applying tensors to a module, second phase: reading the values and putting them where they belong.

What needs no conversion is read in bulk: straight into the memory of parameters that have some, or into new memory (views
of the mapped file, when asked for) for those on the meta device. Everything else goes one tensor at a time.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import errors
from ..._files import loading
from ..._files.progress import Meter, Progress
from ..._tensors import dtypes, frameworks
from .. import param_ids
from ..places import Place, can_replace, replace
from ..values.changed import Cast, Changed, Joined, Transposed, residents
from ..values.original import FileTensor, Loaded

if TYPE_CHECKING:
    from ..._files.source import OpenSource
    from .plan import Assignment, Plan

# By the identity of a source: the source, and the assignments that take its tensors, by the tensors' numbers.
_Batches = dict[int, tuple["OpenSource", dict[int, "Assignment"]]]


def commit(plan: Plan, *, zero_copy: bool, progress: Progress | None) -> None:
    """Carries out a plan. When reading fails, the error's `replaced` lists the parameters that were set, wholly or in part,
    before."""
    fills: _Batches = {}
    adoptions: _Batches = {}
    single: list[Assignment] = []
    _read_overwritten_values(plan.assignments)
    for assignment in plan.assignments:
        held = assignment.snapshot._values
        if isinstance(held, FileTensor) and not assignment.converts:
            batches = adoptions if _is_adopted(assignment, zero_copy) else fills
            batch = batches.setdefault(id(held.source), (held.source, {}))[1]
            if batch.setdefault(held.number, assignment) is assignment:
                continue
        single.append(assignment)
    for _, batch in fills.values():
        single += [batch.pop(number) for number in _overlapping(batch)]
    _Commit(plan, zero_copy, progress).run(fills, adoptions, single)
    for place, key, param_id in plan.new_ids:
        param_ids.give_id(place.owner, key, param_id)


class _Commit:
    def __init__(self, plan: Plan, zero_copy: bool, progress: Progress | None) -> None:
        self._zero_copy = zero_copy
        self._meter = Meter(progress, sum(assignment.snapshot.nbytes for assignment in plan.assignments))
        self._replaced: list[str] = []

    def run(self, fills: _Batches, adoptions: _Batches, single: list[Assignment]) -> None:
        current = ""
        try:
            for source, assignments in fills.values():
                self._note(assignments)
                targets = [
                    (number, _file_tensor(assignment).described, assignment.places[0].value)
                    for number, assignment in assignments.items()
                ]
                loading.fill(source.reader, targets, self._meter.stage())
                self._advance(assignments)
            for source, assignments in adoptions.values():
                self._adopt_all(source, assignments)
            for assignment in single:
                current = assignment.places[0].path
                self._one(assignment)
        except errors.StoreError as error:
            raise failure(error, self._replaced) from None
        except FAILURES as error:
            raise failure(error, self._replaced, current or None) from error

    def _adopt_all(self, source: OpenSource, assignments: dict[int, Assignment]) -> None:
        for framework in ("torch", "numpy"):
            chosen = {
                number: assignment
                for number, assignment in assignments.items()
                if frameworks.is_tensor(assignment.places[0].value) == (framework == "torch")
            }
            if not chosen:
                continue
            if self._zero_copy:
                loaded = loading.view_all(source, list(chosen), framework)
            else:
                loaded = loading.load(source.reader, list(chosen), framework, self._meter.stage())
            self._note(chosen)
            for assignment in chosen.values():
                _adopt(assignment.places, loaded.pop(_file_tensor(assignment).name))
            self._advance(chosen)
            if self._zero_copy:
                self._meter.tell(assignment.places[0].path)

    def _one(self, assignment: Assignment) -> None:
        place = assignment.places[0]
        self._replaced.append(place.path)
        if _is_adopted(assignment, self._zero_copy):
            resident = bool(residents(assignment.snapshot._values))
            value = _value(assignment, own=not assignment.converts and (resident or not self._zero_copy))
            _adopt(assignment.places, _as_type(value, place.value) if assignment.converts else value)
        elif not self._filled(assignment, place.value):
            frameworks.copy_into(place.value, _value(assignment, own=False))
        self._meter.advance(assignment.snapshot.nbytes)
        self._meter.tell(place.path)

    def _filled(self, assignment: Assignment, target: Any) -> bool:
        """Transposes and casts go straight into the memory of the target, where that lies as a file would."""
        held = assignment.snapshot._values
        if assignment.converts:
            expected = frameworks.type_and_shape(target)[0]
            if expected not in dtypes.FLOATS or held.dtype not in dtypes.FLOATS:
                return False
            held = Cast(held, expected)
        address = frameworks.plain_memory(target)
        if address is None or not isinstance(held, (Cast, Transposed, Joined)):
            return False
        if isinstance(held, Joined):
            held.read_into(address)
        else:
            held.producer(read_now=True).read_into(address, held.nbytes)
        frameworks.note_written(target)
        return True

    def _note(self, assignments: dict[int, Assignment]) -> None:
        self._replaced += [assignment.places[0].path for assignment in assignments.values()]

    def _advance(self, assignments: dict[int, Assignment]) -> None:
        self._meter.advance(sum(assignment.snapshot.nbytes for assignment in assignments.values()))


# What reading, or a callback of the caller, may raise.
FAILURES = (OSError, ValueError, TypeError, RuntimeError, KeyError, AttributeError)


def failure(error: Exception, replaced: list[str], tensor: str | None = None) -> errors.StoreError:
    """The error to raise, with the parameters that were replaced before it."""
    made = error
    if not isinstance(made, errors.StoreError):
        made = errors.make("validation", f"{type(error).__name__}: {error}", tensor=tensor)
    made.replaced = replaced
    if replaced:
        names = ", ".join(replaced[:10]) + (", ..." if len(replaced) > 10 else "")
        made.add_note(f"{len(replaced)} parameters had been replaced by then, wholly or in part: {names}")
    return made


def _read_overwritten_values(assignments: list[Assignment]) -> None:
    """Reads values that lie where others are about to go: a module's own tensors, on their way to other names."""
    resident = [(assignment, value) for assignment in assignments for value in residents(assignment.snapshot._values)]
    if not resident:
        return
    targets = sorted(frameworks.memory_range(assignment.places[0].value) for assignment in assignments)
    reaches = [0, *accumulate((end for _, end in targets), max)]
    for assignment, value in resident:
        held = assignment.snapshot._values
        begin, end = frameworks.memory_range(value)
        stays = value is assignment.places[0].value and not isinstance(held, (Changed, Joined))
        # Of the targets that begin before these values end, one reaches beyond their begin.
        if (
            not stays
            and not isinstance(held, Loaded)
            and begin < end
            and reaches[bisect_left(targets, (end, 0))] > begin
        ):
            loaded = Loaded(held, held.own())
            assignment.snapshot = assignment.snapshot._copy(assignment.snapshot.full_path, loaded)


def _file_tensor(assignment: Assignment) -> FileTensor:
    """The tensor of a file that a batched assignment reads."""
    held = assignment.snapshot._values
    assert isinstance(held, FileTensor)
    return held


def _overlapping(assignments: dict[int, Assignment]) -> list[int]:
    """The numbers of tensors whose targets share memory: these are filled one after the other."""
    ranges = sorted(
        (*frameworks.memory_range(assignment.places[0].value), number) for number, assignment in assignments.items()
    )
    found: set[int] = set()
    reach, furthest = 0, -1
    for begin, end, number in ranges:
        if begin < min(reach, end):
            found |= {furthest, number}
        if end > reach:
            reach, furthest = end, number
    return [number for number in assignments if number in found]


def _is_adopted(assignment: Assignment, zero_copy: bool) -> bool:
    """Whether the place gets other memory, instead of being filled."""
    place = assignment.places[0]
    if not frameworks.is_tensor(place.value):
        can_be_filled = isinstance(place.value, np.ndarray) and place.value.flags.writeable
        return assignment.adopts or not can_be_filled or (zero_copy and all(map(can_replace, assignment.places)))
    return assignment.adopts or zero_copy or place.value.device.type == "meta" or frameworks.is_lazy(place.value)


def _value(assignment: Assignment, *, own: bool) -> Any:
    held = assignment.snapshot._values
    return held.torch(own=own) if frameworks.is_tensor(assignment.places[0].value) else held.numpy(own=own)


def _as_type(value: Any, like: Any) -> Any:
    return value.to(like.dtype) if frameworks.is_tensor(like) else value.astype(like.dtype)


def _adopt(places: list[Place], value: Any) -> None:
    """Makes `value` the tensor of all places, which stay tied."""
    if not frameworks.is_tensor(places[0].value):
        for place in places:
            replace(place, value)
        return
    import torch

    made: dict[int, Any] = {}
    with torch.no_grad():
        for place in places:
            old = place.value
            if id(old) in made:
                replace(place, made[id(old)])
            elif old.device.type == "meta" or frameworks.is_lazy(old):
                made[id(old)] = _in_place_of(old, value)
                replace(place, made[id(old)])
            else:
                if old.grad is not None and old.dtype != value.dtype:
                    old.grad = None
                old.data = value.to(old.device)
                made[id(old)] = old


def _in_place_of(old: Any, value: Any) -> Any:
    import torch

    if frameworks.is_lazy(old):
        # The module itself waits for this very object to get its shape.
        old.materialize(tuple(value.shape), device=value.device, dtype=value.dtype)
        old.data = value
        return old
    if isinstance(old, torch.nn.Parameter):
        made = torch.nn.Parameter(value, requires_grad=old.requires_grad)
    else:
        made = value.requires_grad_(old.requires_grad)
    made.__dict__.update(old.__dict__)
    return made

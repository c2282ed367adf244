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
from ..._files.progress import Progress, tell
from ..._tensors import dtypes, frameworks
from .. import param_ids, values
from ..slots import Slot, can_replace, replace
from ..values import FileTensor

if TYPE_CHECKING:
    from ..._files.source import OpenSource
    from .plan import Job, Plan

_Batches = dict[int, tuple["OpenSource", dict[str, "Job"]]]


def commit(plan: Plan, *, zero_copy: bool, progress: Progress | None) -> None:
    """Carries out a plan. When reading fails, the error's `replaced` lists the parameters that were set, wholly or in part,
    before."""
    fills: _Batches = {}
    adoptions: _Batches = {}
    single: list[Job] = []
    _read_what_is_overwritten(plan.jobs)
    for job in plan.jobs:
        held = job.snapshot._values
        if isinstance(held, FileTensor) and not job.converts:
            batches = adoptions if _is_adopted(job, zero_copy) else fills
            batch = batches.setdefault(id(held.source), (held.source, {}))[1]
            if batch.setdefault(held.name, job) is job:
                continue
        single.append(job)
    for _, batch in fills.values():
        single += [batch.pop(name) for name in _overlapping(batch)]
    _Commit(plan, zero_copy, progress).run(fills, adoptions, single)
    for slot, param_id in plan.new_ids:
        param_ids.give_id(slot.owner, slot.key, param_id)


class _Commit:
    def __init__(self, plan: Plan, zero_copy: bool, progress: Progress | None) -> None:
        self._zero_copy = zero_copy
        self._progress = progress
        self._total = sum(job.snapshot.nbytes for job in plan.jobs)
        self._done = 0
        self._replaced: list[str] = []

    def run(self, fills: _Batches, adoptions: _Batches, single: list[Job]) -> None:
        current = ""
        try:
            for source, jobs in fills.values():
                self._note(jobs)
                loading.load_into(
                    source.reader, {name: job.slots[0].value for name, job in jobs.items()}, self._report()
                )
                self._advance(jobs)
            for source, jobs in adoptions.values():
                self._adopt_all(source, jobs)
            for job in single:
                current = job.slots[0].path
                self._one(job)
        except errors.StoreError as error:
            raise self._noted(error) from None
        except (OSError, ValueError, TypeError, RuntimeError, KeyError, AttributeError) as error:
            wrapped = errors.make("validation", f"{type(error).__name__}: {error}", tensor=current or None)
            raise self._noted(wrapped) from error

    def _adopt_all(self, source: OpenSource, jobs: dict[str, Job]) -> None:
        for framework in ("torch", "numpy"):
            chosen = {
                name: job
                for name, job in jobs.items()
                if frameworks.is_tensor(job.slots[0].value) == (framework == "torch")
            }
            if not chosen:
                continue
            numbers = [source.reader.at(name) for name in chosen]
            if self._zero_copy:
                loaded = loading.view_all(source, numbers, framework)
            else:
                loaded = loading.load(source.reader, numbers, framework, self._report())
            self._note(chosen)
            for name, job in chosen.items():
                _adopt(job.slots, loaded.pop(name))
            self._advance(chosen)
            if self._zero_copy:
                self._tell(job.slots[0].path)

    def _one(self, job: Job) -> None:
        slot = job.slots[0]
        self._replaced.append(slot.path)
        if _is_adopted(job, self._zero_copy):
            resident = values.resident(job.snapshot._values) is not None
            value = _value(job, own=not job.converts and (resident or not self._zero_copy))
            _adopt(job.slots, _as_type(value, slot.value) if job.converts else value)
        elif not self._filled(job, slot.value):
            frameworks.copy_into(slot.value, _value(job, own=False))
        self._done += job.snapshot.nbytes
        self._tell(slot.path)

    def _filled(self, job: Job, target: Any) -> bool:
        """Transposes and casts go straight into the memory of the target, where that lies as a file would."""
        held = job.snapshot._values
        if job.converts:
            expected = frameworks.type_and_shape(target)[0]
            if expected not in dtypes.FLOATS or held.dtype not in dtypes.FLOATS:
                return False
            held = values.Cast(held, expected)
        address = frameworks.plain_memory(target)
        if address is None or not isinstance(held, (values.Cast, values.Transposed)):
            return False
        held.producer(read_now=True).read_into(address, held.nbytes)
        frameworks.note_written(target)
        return True

    def _tell(self, path: str) -> None:
        tell(self._progress, self._done, self._total, path)

    def _report(self) -> Progress | None:
        progress, before, total = self._progress, self._done, self._total
        return None if progress is None else lambda done, _, name: progress(before + done, total, name)

    def _note(self, jobs: dict[str, Job]) -> None:
        self._replaced += [job.slots[0].path for job in jobs.values()]

    def _advance(self, jobs: dict[str, Job]) -> None:
        self._done += sum(job.snapshot.nbytes for job in jobs.values())

    def _noted(self, error: errors.StoreError) -> errors.StoreError:
        error.replaced = self._replaced
        if self._replaced:
            names = ", ".join(self._replaced[:10]) + (", ..." if len(self._replaced) > 10 else "")
            error.add_note(f"{len(self._replaced)} parameters had been replaced by then, wholly or in part: {names}")
        return error


def _read_what_is_overwritten(jobs: list[Job]) -> None:
    """Reads sources that lie where values are about to go: a module's own tensors, on their way to other names."""
    resident = [(job, values.resident(job.snapshot._values)) for job in jobs]
    resident = [(job, value) for job, value in resident if value is not None]
    if not resident:
        return
    targets = sorted(frameworks.memory_range(job.slots[0].value) for job in jobs)
    reaches = [0, *accumulate((end for _, end in targets), max)]
    for job, value in resident:
        held = job.snapshot._values
        begin, end = frameworks.memory_range(value)
        stays = value is job.slots[0].value and not isinstance(held, values.Changed)
        # Of the targets that begin before these values end, one reaches beyond their begin.
        if not stays and begin < end and reaches[bisect_left(targets, (end, 0))] > begin:
            loaded = values.Loaded(held, held.own())
            job.snapshot = job.snapshot._copy(job.snapshot.full_path, loaded)


def _overlapping(jobs: dict[str, Job]) -> list[str]:
    """Those whose memory is also another's: they are filled one after the other."""
    ranges = sorted((*frameworks.memory_range(job.slots[0].value), name) for name, job in jobs.items())
    found: set[str] = set()
    reach, furthest = 0, ""
    for begin, end, name in ranges:
        if begin < min(reach, end):
            found |= {furthest, name}
        if end > reach:
            reach, furthest = end, name
    return [name for name in jobs if name in found]


def _is_adopted(job: Job, zero_copy: bool) -> bool:
    """Whether the slot gets other memory, instead of being filled."""
    slot = job.slots[0]
    if not frameworks.is_tensor(slot.value):
        can_be_filled = isinstance(slot.value, np.ndarray) and slot.value.flags.writeable
        return job.adopts or not can_be_filled or (zero_copy and all(map(can_replace, job.slots)))
    return job.adopts or zero_copy or slot.value.device.type == "meta" or frameworks.is_lazy(slot.value)


def _value(job: Job, *, own: bool) -> Any:
    held = job.snapshot._values
    return held.torch(own=own) if frameworks.is_tensor(job.slots[0].value) else held.numpy(own=own)


def _as_type(value: Any, like: Any) -> Any:
    return value.to(like.dtype) if frameworks.is_tensor(like) else value.astype(like.dtype)


def _adopt(slots: list[Slot], value: Any) -> None:
    """Makes `value` the tensor of all slots, which stay tied."""
    if not frameworks.is_tensor(slots[0].value):
        for slot in slots:
            replace(slot, value)
        return
    import torch

    made: dict[int, Any] = {}
    with torch.no_grad():
        for slot in slots:
            old = slot.value
            if id(old) in made:
                replace(slot, made[id(old)])
            elif old.device.type == "meta" or frameworks.is_lazy(old):
                made[id(old)] = _in_place_of(old, value)
                replace(slot, made[id(old)])
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

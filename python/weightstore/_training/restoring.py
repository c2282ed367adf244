"""Restores a step: compares all of it on all ranks first, then reads."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import Any

from .. import errors
from .._checkpoints.ranks import Ranks, together
from .._files.progress import Progress, reporting
from .._files.source import Verify, check_verify
from .._modules.apply.prefixes import find_renaming
from .._modules.filter import PathFilter, check_filter
from .._modules.remap import KeyRemapper
from .._state.apply import fill, load_others, taking_back
from .._state.decode import Decoded
from .._state.into import Choice, Plan, is_object
from .checkpoint import Checkpoint, OpenTree
from .contents import PerRank, split, table_name
from .restored import Restored
from .run_directory import RunDirectory

Rules = KeyRemapper | Mapping[str, str] | Iterable[tuple[str, str]]


def restore_step(
    run: RunDirectory,
    ranks: Ranks,
    into: Mapping[str, Any] | None,
    step: int | None,
    *,
    strict: bool,
    rename: Rules | None,
    filter: PathFilter | None,
    verify: Verify,
    progress: Progress | bool | None,
) -> Restored | None:
    """None if there is no complete step."""
    check_verify(verify)
    choice = _choice(strict, rename, filter)
    while True:
        wanted = step
        if wanted is None:
            newest = together(ranks, lambda: max(run.steps(), default=None) if ranks.rank == 0 else None)[0]
            if newest is None:
                return None
            wanted = newest
        try:
            return _Restore(run, ranks, into or {}, wanted, choice, verify, progress).run_it()
        except errors.TensorNotFound as error:
            # Another process has removed it since.
            if step is not None or error.path != run.path or not together(ranks, run.steps)[0]:
                raise


def _choice(strict: bool, rename: Rules | None, filter: PathFilter | None) -> Choice:
    if filter is not None:
        check_filter(filter)
    rules = None
    if rename is not None:
        rules = rename if isinstance(rename, KeyRemapper) else KeyRemapper.from_patterns(rename)  # type: ignore[arg-type]
    return Choice(
        strict=strict,
        rename=None if rules is None else rules.rename,
        wants=None if filter is None else filter.matches,
        suggest=_suggestion,
        table=table_name,
    )


def _suggestion(in_file: Mapping[str, Any], wanted: Mapping[str, Any]) -> str | None:
    """What the caller may have meant, from names of tensors of the file that no tensor of the module has, and the other way round."""
    shapes = {name: tuple(value.shape) if hasattr(value, "shape") else None for name, value in wanted.items()}
    rules = find_renaming(in_file, shapes, list(wanted), list(in_file)).rules
    if rules:
        return f"the names differ: pass rename={rules!r}"
    for name in wanted:
        near = difflib.get_close_matches(name, in_file, 1)
        if near:
            return f"did you mean '{near[0]}' by '{name}'? rename= gives tensors other names"
    return None


class _Restore:
    def __init__(
        self,
        run: RunDirectory,
        ranks: Ranks,
        into: Mapping[str, Any],
        step: int,
        choice: Choice,
        verify: Verify,
        progress: Progress | bool | None,
    ) -> None:
        self._run = run
        self._ranks = ranks
        self._into = {name: value.value if isinstance(value, PerRank) else value for name, value in into.items()}
        self._step = step
        self._choice = choice
        self._verify = verify
        self._progress = progress
        self._checkpoint: Checkpoint
        self._parts: list[tuple[OpenTree, Plan, list[str]]] = []
        self._there: dict[str, Any] = {}

    def run_it(self) -> Restored:
        with ExitStack() as stack:
            path = together(self._ranks, lambda: stack.enter_context(self._run.reading(self._step)))[self._ranks.rank]
            report = stack.enter_context(reporting(self._progress))
            together(self._ranks, lambda: self._compare(path))
            before_change = stack.enter_context(taking_back())
            reads = [tree.reader(plan.tables, report) for tree, plan, _ in self._parts]

            def ask_others() -> None:
                for (tree, plan, _), read in zip(self._parts, reads, strict=True):
                    load_others(tree.tree, plan, read, path, before_change)

            def fill_all() -> None:
                for (tree, plan, names), read in zip(self._parts, reads, strict=True):
                    self._keep(tree, fill(tree.tree, plan, read, path, everything=False), names)

            together(self._ranks, ask_others)
            together(self._ranks, fill_all)
        return self._result()

    def _keep(self, tree: OpenTree, decoded: Decoded, names: list[str]) -> None:
        """What the result has without reading it again."""
        for name in names:
            value = self._into[name]
            stays = is_object(value) or self._choice.table(value) is not None or (name == "rng" and value is True)
            self._there[name] = value if stays else decoded.value(tree.entries[name])

    def _compare(self, path: str) -> None:
        """Opens the step and finds out whether everything fits."""
        checkpoint = self._checkpoint = Checkpoint(path, self._verify)
        common, own = split(self._into)
        own_names = {name for rank in range(checkpoint.step.world) for name in checkpoint.own(rank).entries}
        mine = {name: value for name, value in {**common, **own}.items() if name in own_names}
        common = {name: value for name, value in {**common, **own}.items() if name not in own_names}
        if mine and checkpoint.step.world != self._ranks.size:
            warnings.warn(
                f"{path}: {checkpoint.step.world} ranks saved it, and {self._ranks.size} restore it; what each rank has "
                f"of its own stays as it is: {', '.join(sorted(mine))}. of_ranks(name) of the result tells what the ranks saved",
                stacklevel=6,
            )
            mine = {}
        plans = []
        for tree, entries in ((checkpoint.common, common), (checkpoint.own(self._own_rank()), mine)):
            plan = Plan(tree.tree, tree.shown, self._choice)
            for name, value in entries.items():
                if name in tree.entries:
                    plan.add(tree.entries[name], value, (None, name))
                else:
                    plan.missing((None, name), _near(name, [*checkpoint.common.entries, *own_names]))
            plans.append((tree, plan, list(entries)))
        _check_all([plan for _, plan, _ in plans], path)
        self._parts = plans

    def _own_rank(self) -> int:
        return min(self._ranks.rank, self._checkpoint.step.world - 1)

    def _result(self) -> Restored:
        checkpoint = self._checkpoint
        own = checkpoint.own(self._own_rank())
        names: dict[str, Callable[[], Any]] = {
            name: _later(checkpoint.common, name) for name in checkpoint.common.entries
        }
        if checkpoint.step.world == self._ranks.size:
            names |= {name: _later(own, name) for name in own.entries}
        step = checkpoint.step
        return Restored(step.step, step.metrics, step.world, self._there, names, checkpoint.of_ranks)


def _later(tree: OpenTree, name: str) -> Callable[[], Any]:
    return lambda: tree.value(name)


def _near(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, 1)
    return f"; did you mean '{near[0]}'?" if near else f"; it has: {', '.join(known) or 'nothing'}"


def _check_all(plans: list[Plan], path: str) -> None:
    """Raises one error for all plans."""
    for plan in plans:
        plan.compare()
    plans[0].check(path, also=plans[1:])

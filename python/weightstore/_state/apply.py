"""Puts a state into what is there, in two phases: nothing is changed before everything was found to fit."""

from __future__ import annotations

import copy
import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from .decode import Decoded, reachable
from .into import Object, Plan, roots_of
from .tree import Tree

_log = logging.getLogger(__name__)

Read = Callable[[Collection[int], Mapping[int, list[Any]]], dict[int, Any]]
"""Reads the arrays, tensors and tables of nodes: into the targets of a node where there are some, else into new memory. It gets the
numbers of all nodes that are needed, also of those that are no tensors, and returns what it read by the number of the node."""


def apply(
    tree: Tree,
    plan: Plan,
    read: Read,
    path: str,
    nodes: Collection[int] | None,
    together: Callable[[Callable[[], None]], Any] = lambda work: work(),
) -> Decoded:
    """Fills everything that the plan has, which was checked. Returns what the nodes describe, with the filled tensors.

    Objects that are no modules and no optimizers of torch decide by themselves whether they take a state. They are asked first, with
    tensors of their own. If one refuses, those before it get their former states back, and its error is raised: nothing has changed.
    Then the tensors are read into the memory that is there.

    nodes: those that the caller wants; None for all. What the plan needs is added.
    together: runs something on all ranks of a group, and raises on all of them if it fails on one.
    """
    wanted = nodes if nodes is None else {*nodes, *reachable(tree, [*roots_of(plan.in_place), *plan.values], path)}
    with _taking_back() as before_change:
        together(lambda: _load_others(tree, plan, read, path, before_change))
        values = read(range(len(tree.nodes)) if wanted is None else wanted, plan.targets)
        decoded = Decoded(tree, values.__getitem__, path, wanted)
        for each in plan.in_place:
            each.target.load_state_dict(*_arguments(each, decoded))
    return decoded


def _load_others(tree: Tree, plan: Plan, read: Read, path: str, before_change: Callable[[Any], None]) -> None:
    if not plan.others:
        return
    needed = reachable(tree, roots_of(plan.others), path)
    decoded = Decoded(tree, read(needed, {}).__getitem__, path, needed)
    for each in plan.others:
        before_change(each.target)
        each.target.load_state_dict(decoded.value(each.encoded))


@contextmanager
def _taking_back() -> Iterator[Callable[[Any], None]]:
    """The function is called with an object before it changes. If the block raises, all these objects get their states back."""
    kept: list[tuple[Any, Any]] = []

    def keep(target: Any) -> None:
        kept.append((target, copy.deepcopy(target.state_dict())))

    try:
        yield keep
    except BaseException:
        for target, state in reversed(kept):
            try:
                target.load_state_dict(state)
            except Exception:
                _log.exception("%s could not be given its former state back", type(target).__name__)
        raise


def _arguments(each: Object, decoded: Decoded) -> tuple[Any, ...]:
    state = decoded.value(each.encoded)
    if each.names is None:
        return (state,)
    # Which names must be there was checked. The filter, or strict=False, may have left some out.
    chosen = OrderedDict((name, state[stored]) for name, stored in each.names.items())
    if all(name == stored for name, stored in each.names.items()):
        vars(chosen).update(getattr(state, "__dict__", {}))  # versions of the modules
    return (chosen, False)

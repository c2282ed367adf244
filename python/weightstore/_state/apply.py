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


BeforeChange = Callable[[Any], None]


def load_others(tree: Tree, plan: Plan, read: Read, path: str, before_change: BeforeChange) -> None:
    """The first phase. Objects that are no modules and no optimizers of torch decide by themselves whether they take a state. They get
    tensors of their own, and no tensor that is there changes. before_change: of `taking_back`."""
    if not plan.others:
        return
    needed = reachable(tree, roots_of(plan.others), path)
    decoded = Decoded(tree, read(needed, {}).__getitem__, path, needed)
    for each in plan.others:
        before_change(each.target)
        each.target.load_state_dict(decoded.value(each.encoded))


def fill(tree: Tree, plan: Plan, read: Read, path: str, *, everything: bool) -> Decoded:
    """The second phase: reads into the memory that is there, and gives modules and optimizers their states. Returns what was read; with
    `everything`, all of the tree."""
    needed: Collection[int] = range(len(tree.nodes))
    if not everything:
        needed = reachable(tree, [*roots_of(plan.in_place), *plan.values], path)
    values = read(needed, plan.targets)
    decoded = Decoded(tree, values.__getitem__, path, needed)
    for each in plan.in_place:
        each.target.load_state_dict(*_arguments(each, decoded))
    return decoded


@contextmanager
def taking_back() -> Iterator[BeforeChange]:
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

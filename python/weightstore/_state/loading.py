"""Loads a state."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from .. import errors
from .._files.progress import Progress, reporting
from .._files.source import OpenSource, Verify, open_source
from .apply import fill, load_others, taking_back
from .into import Choice, Plan
from .reading import read_into
from .stored import stored_tensors
from .tree import METADATA_KEY, Tree, corrupt, parse


def load_state(
    path: str | os.PathLike[str],
    into: Any = None,
    *,
    verify: Verify = "lazy",
    progress: Progress | bool | None = None,
) -> Any:
    """Returns a state that `save_state` saved. Tensors are on the CPU, in memory of their own. Runs nothing of the file.

    into: memory to use: a state of the same form, in which tensors, arrays and objects with `load_state_dict` (modules,
        optimizers, schedulers) are filled with what the file has at the same place. The result has these tensors and arrays
        instead of new ones. `into` may be a part of the state. A tensor that the file does not have, or has in another type or
        shape, is an error, and so is a module or an optimizer that does not fit; the error lists all of them, and nothing was
        changed. Other objects are asked first, with new tensors; if one raises, the others get their former states back, and no
        tensor was changed.
    verify: compare the checksums of the file while it is read: "off", "lazy" or "full", as `weightstore.open` does.
    """
    with open_source(path, backend="pread", verify=verify) as source, reporting(progress) as report:
        name = source.path or "<memory>"
        tree = _tree(source, name)
        stored = stored_tensors(tree, source.reader, name)
        plan = Plan(tree, lambda number: stored[number].shown(source.reader) if number in stored else None, Choice())
        if into is not None:
            with _damaged(name):
                plan.add(tree.root, into)
                plan.compare()
                plan.check(name)

        def read(nodes: Collection[int], targets: Mapping[int, list[Any]]) -> dict[int, Any]:
            return read_into(source, {number: stored[number] for number in nodes if number in stored}, targets, report)

        with taking_back() as before_change:
            load_others(tree, plan, read, name, before_change)
            return fill(tree, plan, read, name, everything=True).value(tree.root)


def _tree(source: OpenSource, name: str) -> Tree:
    text = (source.reader.metadata() or {}).get(METADATA_KEY)
    if text is None:
        raise errors.make(
            "corrupt",
            f"has no metadata entry '{METADATA_KEY}': save_state() did not write it. weightstore.open() opens it",
            path=name,
            format=source.format,
        )
    return parse(text, name)


@contextmanager
def _damaged(name: str) -> Iterator[None]:
    """What a tree says that is not so."""
    try:
        yield
    except errors.StoreError:
        raise
    except (ValueError, TypeError) as error:
        raise corrupt(name, str(error)) from None

"""Loads a state."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from .. import errors
from .._files import loading
from .._files.progress import Progress, reporting
from .._files.source import OpenSource, Verify, open_source
from .._tensors import frameworks
from .apply import apply
from .into import Choice, Plan
from .stored import StoredTensor, read, restored, stored_tensors
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
                plan.check(name)

        def read(nodes: Collection[int], targets: Mapping[int, list[Any]]) -> dict[int, Any]:
            return _read(source, {number: stored[number] for number in nodes if number in stored}, targets, report)

        return apply(tree, plan, read, name, None).value(tree.root)


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


def _read(
    source: OpenSource, stored: dict[int, StoredTensor], targets: Mapping[int, list[Any]], progress: Progress | None
) -> dict[int, Any]:
    """The arrays and tensors of all nodes."""
    reader, name = source.reader, source.path or "<memory>"
    straight = {number: targets[number][0] for number in stored if number in targets and stored[number].is_plain}
    described = reader.describe_many([stored[number].number for number in straight])
    fills = zip((stored[number].number for number in straight), described, straight.values(), strict=True)
    loading.fill(reader, fills, progress)
    filled = {stored[number].name: value for number, value in straight.items()}
    loaded = filled | read(reader, [tensor for tensor in stored.values() if tensor.name not in filled], progress)

    values = {}
    for number, tensor in stored.items():
        value = straight[number] if number in straight else _restored(number, tensor, loaded[tensor.name], name)
        for target in targets.get(number, ()):
            if target is not value and frameworks.identity(target) != frameworks.identity(value):
                frameworks.copy_into(target, value)
        values[number] = targets[number][0] if number in targets else value
    return values


def _restored(number: int, tensor: StoredTensor, loaded: Any, name: str) -> Any:
    try:
        return restored(tensor, loaded)
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:
        raise corrupt(name, f"node {number}: {error}") from None

"""Reads the tensors of a state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._files import loading
from .._files.progress import Progress
from .._files.source import OpenSource
from .._tensors import frameworks
from .stored import StoredTensor, read, restored
from .tree import corrupt


def read_into(
    source: OpenSource, stored: dict[int, StoredTensor], targets: Mapping[int, list[Any]], progress: Progress | None
) -> dict[int, Any]:
    """The arrays and tensors of nodes: in the targets of a node where there are some, else in new memory."""
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

"""Finds out where the states of ranks differ that must be the same."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from .. import errors
from .._checkpoints.ranks import Ranks
from .._state.tree import REFERENCE


def agree_on_tree(ranks: Ranks, text: str) -> None:
    """Raises InvalidArgument on all ranks unless the text is the same on all of them."""
    if ranks.size == 1:
        return
    digests = ranks.gather(hashlib.sha256(text.encode()).digest())
    differing = [rank for rank, digest in enumerate(digests) if digest != digests[0]]
    if not differing:
        return
    rank = differing[0]
    # Only the two that are compared need their whole text.
    told = ranks.gather(text if ranks.rank in (0, rank) else None)
    place, ours, theirs = first_difference(json.loads(told[0]), json.loads(told[rank]))
    raise errors.make(
        "invalid_argument",
        f"ranks 0 and {rank} have different states at '{place}': {ours} and {theirs}. Save what differs from rank to rank "
        "as an entry PerRank(...), and for all else make sure that the ranks have the same",
        format="checkpoint",
    )


def first_difference(a: Any, b: Any) -> tuple[str, str, str]:
    """Where two documents of trees differ, and what they have there."""
    waiting = [("", a["root"], b["root"])]
    seen: set[tuple[int, int]] = set()
    while waiting:
        path, x, y = waiting.pop()
        if not (_is_reference(x) and _is_reference(y)):
            if x != y:
                return path.lstrip(".") or "state", f"{x!r:.60}", f"{y!r:.60}"
            continue
        if (x[1], y[1]) in seen:
            continue
        seen.add((x[1], y[1]))
        first, second = a["nodes"][x[1]], b["nodes"][y[1]]
        if first[0] != second[0] or len(first) != len(second):
            return path.lstrip(".") or "state", _kind(first), _kind(second)
        keyed = first[0] in ("dict", "OrderedDict", "defaultdict", "Counter", "dataclass")
        start = 1 if first[0] in ("dict", "Counter") else 2
        for position in range(len(first) - 1, 0, -1):
            is_key = keyed and position >= start and (position - start) % 2 == 0
            name = first[position - 1] if keyed and position > start and not is_key else position - 1
            below = f"{path}.{name}" if first[0] not in ("tensor", "array") else path
            waiting.append((below, first[position], second[position]))
    return "state", "the same values", "the same values in another order"


def _is_reference(value: Any) -> bool:
    return isinstance(value, list) and value[:1] == [REFERENCE]


def _kind(node: list[Any]) -> str:
    return f"{node[0]} of {len(node) - 1} items"

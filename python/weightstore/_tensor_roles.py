"""Tensors by what they are for: the values of `pinned=` that are neither names nor slots.

"embeddings" and "head" go by the usual names of such layers, "last:4" by the numbers of layers in the names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from operator import index
from typing import Any

from . import errors

# A part of the name between two dots.
_EMBEDDINGS = re.compile(
    r"(embed|embeds|(\w+_)?(embeddings?|embed|embd|emb|embed_\w+)|embed_\w+|wte|wpe|shared|token_embd)"
)
_HEAD = re.compile(
    r"(lm_|output_|classification_)?head|output|lm_head|(\w+_)?classifier|logits|unembed(ding)?|fc_out|embed_out"
)
_LAST = re.compile(r"last:(\d+)")
_NUMBERED = re.compile(r"^((?:[^.]+\.)*?[^.]+\.)(\d+)\.")


def pinned_names(pinned: Iterable[Any], names: Sequence[str]) -> list[str]:
    """The names that are meant: each entry is a name, a slot, a pattern such as "encoder.*", or a role."""
    found: dict[str, None] = {}
    known = set(names)
    for entry in pinned:
        if isinstance(entry, str):
            found.update(dict.fromkeys(_matching(entry, names, known)))
        else:
            found[names[_slot(entry, len(names))]] = None
    return list(found)


def _slot(entry: Any, count: int) -> int:
    try:
        slot = index(entry)
    except TypeError:
        raise TypeError(f"pinned must hold names or slots of tensors, patterns or roles, not {entry!r}") from None
    if not 0 <= slot < count:
        raise errors.make("not_found", f"cannot pin slot {slot}: the source has {count} tensors", format="pager")
    return slot


def _matching(entry: str, names: Sequence[str], known: set[str]) -> list[str]:
    if entry in known:
        return [entry]
    last = _LAST.fullmatch(entry)
    if entry == "embeddings":
        chosen = [name for name in names if _has_part(name, _EMBEDDINGS)]
    elif entry == "head":
        chosen = [name for name in names if _has_part(name, _HEAD)]
    elif last is not None:
        chosen = last_layers(names, int(last.group(1)))
    elif any(letter in entry for letter in "*?["):
        chosen = [name for name in names if fnmatchcase(name, entry)]
    else:
        return [entry]  # the core says that there is none
    if not chosen:
        raise errors.make(
            "not_found",
            f"pinned: no tensor is meant by {entry!r}; give names or patterns. The names begin with "
            f"{', '.join(repr(name) for name in names[:3])}",
            format="pager",
        )
    return chosen


def _has_part(name: str, pattern: re.Pattern[str]) -> bool:
    return any(pattern.fullmatch(part) for part in name.split("."))


def last_layers(names: Sequence[str], count: int) -> list[str]:
    """The tensors of the `count` layers with the highest numbers, in the list that has the most layers."""
    layers: dict[str, set[int]] = {}
    numbered = [match for name in names if (match := _NUMBERED.match(name)) is not None]
    for match in numbered:
        layers.setdefault(match.group(1), set()).add(int(match.group(2)))
    if not layers:
        return []
    longest = max(layers, key=lambda prefix: len(layers[prefix]))
    last = sorted(layers[longest])[-count:] if count else []
    wanted = tuple(f"{longest}{number}." for number in last)
    return [name for name in names if wanted and name.startswith(wanted)]

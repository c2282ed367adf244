"""Finds the prefix by which the names of a source and of a module differ: `module.` of DistributedDataParallel, `_orig_mod.`
of torch.compile, or any other."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

from ..remap import KeyRemapper

Shape = tuple[int, ...] | None  # None: not known

_MOST_RULES = 3
_MOST_HEADS = 12
_SPECIAL = re.compile(r"[\\.^$*+?{}\[\]|()#&~\-\s]")


@dataclass(slots=True)
class Renaming:
    """Rules for with_key_remapping(), and the tensor of the source that each missing parameter then is."""

    rules: list[tuple[str, str]] = field(default_factory=list)
    found: dict[str, str] = field(default_factory=dict)

    def calls(self) -> str:
        """The calls, as a user writes them after the store."""
        return "".join(f".with_key_remapping({_raw(pattern)}, {_quoted(new)})" for pattern, new in self.rules)


def find_renaming(
    names: Mapping[str, Shape], wanted: Mapping[str, Shape], missing: Collection[str], unused: Collection[str]
) -> Renaming:
    """The renaming of a source that finds the most of the missing parameters, and takes away none that is found already.

    names: the tensors of the source. wanted: the parameters of the module. missing, unused: those without a counterpart.
    """
    found = Renaming()
    current = {name: name for name in names}  # the name in the source to the name after the rules so far
    absent, spare = set(missing), set(unused)
    while absent and spare and len(found.rules) < _MOST_RULES:
        step = _best_rule({current[name]: names[name] for name in spare}, {path: wanted[path] for path in absent})
        if step is None:
            break
        old, new, pairs = step
        rule = _working_rule(old, new, pairs, list(current.values()), {current[name] for name in spare})
        if rule is None:
            break
        before = {now: name for name, now in current.items()}
        for now, path in pairs.items():
            found.found[path] = before[now]
            absent.discard(path)
            spare.discard(before[now])
        found.rules.append(rule)
        rename = _renamer(rule)
        current = {name: rename(now) for name, now in current.items()}
    return found


def _best_rule(spare: Mapping[str, Shape], absent: Mapping[str, Shape]) -> tuple[str, str, dict[str, str]] | None:
    """The two prefixes (of the source and of the module) that most pairs of names differ by, and these pairs."""
    by_suffix: dict[str, str | None] = {}
    for path in absent:
        for ending in _suffixes(path):
            by_suffix[ending] = path if ending not in by_suffix else None
    pairs: dict[tuple[str, str], dict[str, str]] = {}
    for name, shape in spare.items():
        suffix = next((ending for ending in _suffixes(name) if ending in by_suffix), "")
        wanted = by_suffix.get(suffix)
        if wanted is None or not _same(shape, absent[wanted]):
            continue
        prefixes = (name[: len(name) - len(suffix)], wanted[: len(wanted) - len(suffix)])
        pairs.setdefault(prefixes, {})[name] = wanted
    counts = Counter({prefixes: len(found) for prefixes, found in pairs.items()})
    # Two names that share their last component only may be different things. A whole prefix more or less is not.
    sure = [prefixes for prefixes in counts if counts[prefixes] > 1 or "" in prefixes]
    if not sure:
        return None
    old, new = min(sure, key=lambda prefixes: (-counts[prefixes], len("".join(prefixes)), prefixes))
    return old, new, pairs[old, new]


def _working_rule(
    old: str, new: str, pairs: Mapping[str, str], names: Collection[str], spare: Collection[str]
) -> tuple[str, str] | None:
    """A rule that renames these pairs and leaves alone all names that are found already; None if there is none."""
    heads = sorted({name[len(old) :].partition(".")[0] for name in pairs})
    rules = [("^" + _escaped(old), new.replace("$", "$$"))]
    if len(heads) <= _MOST_HEADS:
        some = "|".join(map(_escaped, heads))
        rules.append((rf"^{_escaped(old)}({some})(\.|$)", new.replace("$", "$$") + "$1$2"))
    for rule in rules:
        rename = _renamer(rule)
        renamed = {name: rename(name) for name in names}
        keeps = all(now == name for name, now in renamed.items() if name not in spare)
        if keeps and len(set(renamed.values())) == len(names) and all(renamed[a] == b for a, b in pairs.items()):
            return rule
    return None


def _renamer(rule: tuple[str, str]) -> Callable[[str], str]:
    return KeyRemapper().add_pattern(*rule).rename


def _suffixes(name: str) -> Iterator[str]:
    """The name, and what is left of it without its first component, its first two, ..."""
    yield name
    dot = name.find(".")
    while dot >= 0:
        yield name[dot + 1 :]
        dot = name.find(".", dot + 1)


def _same(one: Shape, other: Shape) -> bool:
    return one is None or other is None or one == other


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\g<0>", text)


def _raw(pattern: str) -> str:
    return repr(pattern) if '"' in pattern or not pattern.isprintable() or pattern.endswith("\\") else f'r"{pattern}"'


def _quoted(text: str) -> str:
    return repr(text) if '"' in text or "\\" in text or not text.isprintable() else f'"{text}"'

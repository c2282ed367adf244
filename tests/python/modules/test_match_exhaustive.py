"""Matching of names, explored exhaustively against slow definitions that are easy to check."""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys

from weightstore._modules.match import looks_like_variant, match, names_without_variants

COMPONENTS = ("a", "b", "Xx", "Yy")


def names_up_to(depth: int) -> list[str]:
    """All names of up to `depth` components that begin with "a"."""
    return [".".join(("a", *rest)) for length in range(depth) for rest in itertools.product(COMPONENTS, repeat=length)]


def sets_of(names: list[str], at_most: int) -> list[tuple[str, ...]]:
    return [chosen for size in range(1, at_most + 1) for chosen in itertools.combinations(names, size)]


# ---- variants: the definition ----------------------------------------------------------------------------------------


class Side:
    """The names of one side, as tuples of components."""

    def __init__(self, names):
        self.paths = {tuple(name.split(".")) for name in names}

    def below(self, place):
        return [path for path in self.paths if path[: len(place)] == place]

    def has_variant(self, place):
        """Whether a name goes on from this place with a variant, which is never the last component."""
        size = len(place)
        return any(len(path) > size + 1 and looks_like_variant(path[size]) for path in self.below(place))

    def holds_only(self, child):
        """Whether the place holds nothing but this child, and neither of the two is a tensor itself."""
        place = child[:-1]
        return {path[: len(child)] for path in self.below(place)} == {child} and child not in self.paths


def aligned(ours, one, i, theirs, other, j) -> bool:
    """Whether one[i:] and other[j:] are the same, apart from variants that one side lacks. Tries every way."""
    if i == len(one) and j == len(other):
        return True
    if i < len(one) and j < len(other) and one[i] == other[j] and aligned(ours, one, i + 1, theirs, other, j + 1):
        return True

    def may_pass_over(side, path, at, opposite, place):
        return (
            0 < at < len(path) - 1
            and looks_like_variant(path[at])
            and side.holds_only(path[: at + 1])
            and not opposite.has_variant(place)
        )

    if may_pass_over(ours, one, i, theirs, other[:j]) and aligned(ours, one, i + 1, theirs, other, j):
        return True
    return may_pass_over(theirs, other, j, ours, one[:i]) and aligned(ours, one, i, theirs, other, j + 1)


def by_definition(sources, targets) -> set[tuple[str, str]]:
    """(target, source) for all names that belong together."""
    ours, theirs = Side(sources), Side(targets)
    return {
        (".".join(other), ".".join(one))
        for one in ours.paths
        for other in theirs.paths
        if aligned(ours, one, 0, theirs, other, 0)
    }


def runs_of_variants(name: str) -> tuple[list[str], list[list[str]]]:
    """The ordinary components, and the variants after each of them."""
    components = name.split(".")
    ordinary, runs = [], []
    for i, component in enumerate(components):
        if 0 < i < len(components) - 1 and looks_like_variant(component):
            runs[-1].append(component)
        else:
            ordinary.append(component)
            runs.append([])
    return ordinary, runs


def check(sources, targets):
    found = match(sources, targets, indices=False, variants=True)
    if found is None:
        assert set(targets) <= set(sources)
        return
    assert set(found.items()) == by_definition(sources, targets), (sources, targets)
    assert len(set(found.values())) == len(found), (sources, targets)
    for target, source in found.items():
        ordinary, runs = runs_of_variants(source)
        other_ordinary, other_runs = runs_of_variants(target)
        assert ordinary == other_ordinary
        # No place has a variant on one side and another variant on the other side.
        assert all(
            one == other for pair in zip(runs, other_runs, strict=True) for one, other in zip(*pair, strict=False)
        )
    for name in set(sources) & set(targets):
        assert found[name] == name


def test_two_names_against_two():
    chosen = sets_of(names_up_to(3), 2)
    for sources, targets in itertools.product(chosen, repeat=2):
        check(sources, targets)


def test_three_names_against_one():
    names = names_up_to(3)
    for several, single in itertools.product(itertools.combinations(names, 3), names):
        check(several, (single,))
        check((single,), several)


def test_more_and_deeper_names():
    choose = random.Random(1)
    names = names_up_to(5)
    for _ in range(10_000):
        check(choose.sample(names, choose.randint(1, 6)), choose.sample(names, choose.randint(1, 6)))


def test_saving_keeps_names_apart():
    for names in itertools.chain(sets_of(names_up_to(3), 3), itertools.combinations(names_up_to(4), 2)):
        shorter = names_without_variants(names)
        assert len(set(shorter.values())) == len(names), names
        side = Side(names)
        for name, made in shorter.items():
            path = name.split(".")
            kept = [
                component
                for i, component in enumerate(path)
                if not (
                    0 < i < len(path) - 1 and looks_like_variant(component) and side.holds_only(tuple(path[: i + 1]))
                )
            ]
            assert made == ".".join(kept), names


# ---- indices: the definition -----------------------------------------------------------------------------------------


def lists_by_definition(ours: set[int], theirs: set[int]) -> dict[int, int]:
    """Target index to source index, for two lists whose elements are alike."""
    closed = [indices == set(range(len(indices))) for indices in (ours, theirs)]
    gaps = [indices != set(range(min(indices), max(indices) + 1)) for indices in (ours, theirs)]
    if len(ours) == len(theirs) and ((closed[0] and gaps[1]) or (closed[1] and gaps[0])):
        return dict(zip(sorted(theirs), sorted(ours), strict=True))
    return {index: index for index in ours & theirs}


INDEX_SETS = [set(chosen) for size in range(1, 6) for chosen in itertools.combinations(range(6), size)]


def test_all_small_lists():
    for ours, theirs in itertools.product(INDEX_SETS, repeat=2):
        found = match({f"l.{i}.w" for i in ours}, {f"l.{i}.w" for i in theirs}, indices=True, variants=False)
        if found is None:
            assert theirs <= ours
            continue
        expected = {f"l.{target}.w": f"l.{source}.w" for target, source in lists_by_definition(ours, theirs).items()}
        assert found == expected, (ours, theirs)


def test_elements_with_nothing_in_common_are_not_matched_in_order():
    """Every pair must have a tensor name in common: the elements are told apart by the names of their tensors."""
    for kinds in itertools.product("vw", repeat=6):
        sources = [f"l.{i}.{kind}" for i, kind in zip((0, 2, 4), kinds, strict=False)]
        targets = [f"l.{i}.{kind}" for i, kind in zip((0, 1, 2), kinds[3:], strict=True)]
        found = match(sources, targets, indices=True, variants=False)
        alike = kinds[:3] == kinds[3:]
        expected = dict(zip(targets, sources, strict=True)) if alike else {t: t for t in set(sources) & set(targets)}
        assert found == expected


# ---- order -----------------------------------------------------------------------------------------------------------

MIXED = ("a", "b", "Xx", "Yy", "0", "1", "3")


def random_cases(count: int):
    choose = random.Random(2)
    for _ in range(count):
        yield tuple(
            sorted({".".join(choose.choices(MIXED, k=choose.randint(1, 5))) for _ in range(choose.randint(1, 8))})
            for _ in range(2)
        )


def test_the_order_of_names_makes_no_difference():
    shuffle = random.Random(3).shuffle
    for sources, targets in random_cases(3000):
        found = match(sources, targets, indices=True, variants=True)
        for _ in range(3):
            shuffle(sources)
            shuffle(targets)
            assert match(sources, targets, indices=True, variants=True) == found
        if found is not None:
            assert len(set(found.values())) == len(found)


DIGEST = """
import hashlib, sys
sys.path[:0] = sys.argv[1:]
from test_match_exhaustive import match, random_cases
found = [sorted((match(s, t, indices=True, variants=True) or {}).items()) for s, t in random_cases(1000)]
print(sum(map(len, found)), hashlib.sha256(repr(found).encode()).hexdigest())
"""


def test_the_seed_of_hashes_makes_no_difference():
    said = {
        subprocess.run(
            [sys.executable, "-c", DIGEST, os.path.dirname(__file__)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("0", "1", "2", "3", "4")
    }
    assert len(said) == 1
    assert int(said.pop().split()[0]) > 100

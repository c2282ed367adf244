"""Which tensor of a file is meant for which parameter, when their names differ in ways that can be seen through."""

from __future__ import annotations

from collections.abc import Iterable

from ._indices import index_of


def looks_like_variant(component: str) -> bool:
    """A word in CamelCase, as the variants of Burn's enums are."""
    return len(component) > 1 and component[0].isupper() and any(letter.islower() for letter in component[1:])


def without_variants(path: str) -> str:
    """A path without the components between its first and last that look like enum variants."""
    first, *middle, last = path.split(".") if path.count(".") > 1 else (path, "")
    if not last:
        return path
    return ".".join([first, *(component for component in middle if not looks_like_variant(component)), last])


# No module nests deeper; a name that does is found by nobody.
_DEEPEST = 100


class _Node:
    __slots__ = ("children", "name")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.name: str | None = None  # the whole name, where one ends


def _tree(names: Iterable[str]) -> _Node:
    root = _Node()
    for name in names:
        node = root
        if name.count(".") >= _DEEPEST:
            continue
        for component in name.split("."):
            node = node.children.setdefault(component, _Node())
        node.name = name
    return root


def match(sources: Iterable[str], targets: Iterable[str], *, indices: bool, variants: bool) -> dict[str, str] | None:
    """Target names to the names of their sources; None when each has the other's name or none.

    indices: lists whose indices differ are matched in order, so that `fc.0, fc.2` is found for `fc.0, fc.1` and the other
        way round. A list is matched like this as a whole, and only when more of it is found than by its exact names.
    variants: components that look like enum variants may be there on one side only.
    """
    wanted, given = set(targets), set(sources)
    if not (indices or variants) or wanted <= given:
        return None
    return _Matcher(indices, variants).match(_tree(given), _tree(wanted), True)


class _Matcher:
    def __init__(self, indices: bool, variants: bool) -> None:
        self._indices = indices
        self._variants = variants
        self._known: dict[tuple[int, int], dict[str, str]] = {}

    def match(self, source: _Node, target: _Node, top: bool) -> dict[str, str]:
        """What is found below two nodes: target name to source name."""
        key = id(source), id(target)
        if key not in self._known:
            self._known[key] = {}
            self._known[key] = self._match(source, target, top)
        return self._known[key]

    def _match(self, source: _Node, target: _Node, top: bool) -> dict[str, str]:
        found = {}
        if source.name is not None and target.name is not None:
            found[target.name] = source.name
        numbered = [key for key in target.children if index_of(key) is not None] if self._indices else []
        for key, child in source.children.items():
            if key in target.children and not (numbered and index_of(key) is not None):
                found |= self.match(child, target.children[key], False)
        if numbered:
            source_keys = [key for key in source.children if index_of(key) is not None]
            found |= self._match_lists(source, target, _in_order(source_keys), _in_order(numbered))
        if self._variants and not top:
            self._see_through(source, target, found)
        return found

    def _match_lists(
        self, source: _Node, target: _Node, source_keys: list[str], target_keys: list[str]
    ) -> dict[str, str]:
        def paired(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
            found: dict[str, str] = {}
            for one, other in pairs:
                found |= self.match(source.children[one], target.children[other], False)
            return found

        exact = paired((key, key) for key in source_keys if key in target.children)
        if source_keys == target_keys:
            return exact
        in_order = paired(zip(source_keys, target_keys, strict=False))
        return in_order if len(in_order) > len(exact) else exact

    def _see_through(self, source: _Node, target: _Node, found: dict[str, str]) -> None:
        """Adds what is found when a variant on one side is passed over."""
        pairs = [
            (child, target)
            for key, child in source.children.items()
            if child.children and key not in target.children and looks_like_variant(key)
        ]
        pairs += [
            (source, child)
            for key, child in target.children.items()
            if child.children and key not in source.children and looks_like_variant(key)
        ]
        used = set(found.values())
        for one, other in pairs:
            for target_name, source_name in self.match(one, other, False).items():
                if target_name not in found and source_name not in used:
                    found[target_name] = source_name
                    used.add(source_name)


def _in_order(indices: list[str]) -> list[str]:
    return sorted(indices, key=lambda index: (index_of(index) or 0, index))

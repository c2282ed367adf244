"""Which tensor of a file belongs to which parameter, if their names differ in indices or enum variants."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from .indices import index_of


def looks_like_variant(component: str) -> bool:
    """A word in CamelCase, as the variants of Burn's enums are."""
    return len(component) > 1 and component[0].isupper() and any(letter.islower() for letter in component[1:])


def without_variants(path: str) -> str:
    """A path without the components between its first and last that look like enum variants."""
    first, *middle, last = path.split(".") if path.count(".") > 1 else (path, "")
    if not last:
        return path
    return ".".join([first, *(component for component in middle if not looks_like_variant(component)), last])


def names_without_variants(names: Collection[str]) -> dict[str, str]:
    """Each name, and the name without enum variants: a variant is alone in its place. Different names stay different."""
    root = _Node()
    for name in names:
        _add(root, name)
    return {name: _without_variants_below(root, name) for name in names}


def _without_variants_below(node: _Node, name: str) -> str:
    kept = []
    for i, component in enumerate(name.split(".")):
        child = node.children[component]
        if i == 0 or node.only_variant() is not child:
            kept.append(component)
        node = child
    return ".".join(kept)


def seen_names(targets: Collection[str], stored: Iterable[str], found: Mapping[str, str]) -> dict[str, str]:
    """Each target, and its name without the variants that the stored names lack.

    found: target names to stored names. Where nothing was found, a variant stays if stored names have it in the same place.
    """
    shorter = names_without_variants(targets)
    if all(name == short for name, short in shorter.items()):
        return shorter
    root, files = _Node(), _tree(stored)
    for name in targets:
        _add(root, name)
    return {
        name: name if name == short else _seen(name, root, files, found.get(name)) for name, short in shorter.items()
    }


def _seen(name: str, node: _Node, stored: _Node | None, found: str | None) -> str:
    found_components = None if found is None else found.split(".")
    kept = []
    for i, component in enumerate(name.split(".")):
        child = node.children[component]
        below = None if stored is None else stored.children.get(component)
        is_variant = i > 0 and node.only_variant() is child
        has_it = below is not None if found_components is None else component in found_components
        if has_it or not is_variant:
            kept.append(component)
            stored = below
        node = child
    return ".".join(kept)


# No module nests deeper. Deeper names are found only by their exact text.
_DEEPEST = 100


class _Node:
    __slots__ = ("children", "name", "path")

    def __init__(self, path: str = "") -> None:
        self.path = path  # what the names below begin with, without the dot
        self.children: dict[str, _Node] = {}
        self.name: str | None = None  # the whole name, where one ends

    def variants(self) -> list[str]:
        """The children that look like enum variants: in CamelCase, and not the last component of a name."""
        return [key for key, child in self.children.items() if child.children and looks_like_variant(key)]

    def only_variant(self) -> _Node | None:
        """The node's variant, if the node holds nothing else. An enum has one variant at a time; a place with several
        children is not an enum but a dict of modules."""
        if self.name is not None or len(self.children) != 1 or not self.variants():
            return None
        (variant,) = self.children.values()
        return variant if variant.name is None else None


def _is_deep(name: str) -> bool:
    return name.count(".") >= _DEEPEST


def _add(root: _Node, name: str) -> None:
    node = root
    end = -1
    for component in name.split("."):
        end += 1 + len(component)
        child = node.children.get(component)
        if child is None:
            child = node.children[component] = _Node(name[:end])
        node = child
    node.name = name


def _tree(names: Iterable[str]) -> _Node:
    root = _Node()
    for name in names:
        if not _is_deep(name):
            _add(root, name)
    return root


def match(
    stored: Iterable[str],
    targets: Iterable[str],
    *,
    indices: bool,
    variants: bool,
    keeps_indices: Callable[[str], bool] | None = None,
) -> dict[str, str] | None:
    """Target names to stored names; None if each target can only be found under its own name.

    The order of the names makes no difference, and no stored name is found for two targets.

    indices: a list with gaps in its numbering and a list without are matched in order, so that `fc.0, fc.2` is found for
        `fc.0, fc.1`, and the other way round. See _Matcher._match_lists.
    keeps_indices: whether a list is matched by its numbers alone, given what the stored names of its elements begin with.
    variants: an enum variant that only one side has is passed over. A variant is passed over only if the other side has
        no variant in the same place: `heads.Bird.w` is never found for `heads.Dog.w`.
    """
    wanted, given = set(targets), set(stored)
    if not (indices or variants) or wanted <= given:
        return None
    found = _Matcher(indices, variants, keeps_indices).match(_tree(given), _tree(wanted), True)
    return found | {name: name for name in wanted & given if _is_deep(name)}


class _Matcher:
    def __init__(self, indices: bool, variants: bool, keeps_indices: Callable[[str], bool] | None) -> None:
        self._indices = indices
        self._keeps_indices = keeps_indices
        self._variants = variants
        self._known: dict[tuple[int, int], dict[str, str]] = {}

    def match(self, stored: _Node, target: _Node, top: bool = False) -> dict[str, str]:
        """What is found below two nodes: target name to stored name."""
        key = id(stored), id(target)
        if key not in self._known:
            self._known[key] = self._match(stored, target, top)
        return self._known[key]

    def _match(self, stored: _Node, target: _Node, top: bool) -> dict[str, str]:
        if self._variants and not top:
            # The first component of a name is never a variant.
            inside = stored.only_variant()
            if inside is not None and not target.variants():
                return self.match(inside, target)
            inside = target.only_variant()
            if inside is not None and not stored.variants():
                return self.match(stored, inside)
        found = {}
        if stored.name is not None and target.name is not None:
            found[target.name] = stored.name
        lists = self._match_lists(stored, target) if self._indices else None
        for key, child in stored.children.items():
            if key in target.children and (lists is None or index_of(key) is None):
                found |= self.match(child, target.children[key])
        return found if lists is None else found | lists

    def _match_lists(self, stored: _Node, target: _Node) -> dict[str, str] | None:
        """What is found when the numbered children of two nodes are matched in order; None if they must not be.

        Layers without parameters leave gaps in the numbering on one side. So lists are matched in order only if one side
        counts 0, 1, 2, ..., the other side has gaps between its elements, and both have as many elements. If the lists
        differ in another way (elements are missing, or numbers are shifted), the order does not tell which layer is
        which. Every pair must have something in common, and all pairs together more than the exact names.
        """
        ours, theirs = _by_index(stored), _by_index(target)
        if ours is None or theirs is None or len(ours) != len(theirs):
            return None
        if self._keeps_indices is not None and self._keeps_indices(stored.path):
            return None
        if not ((_counts_from_zero(ours) and _has_gaps(theirs)) or (_has_gaps(ours) and _counts_from_zero(theirs))):
            return None
        in_order: dict[str, str] = {}
        for one, other in zip(sorted(ours), sorted(theirs), strict=True):
            pair = self.match(ours[one], theirs[other])
            if not pair:
                return None
            in_order |= pair
        exact = sum(len(self.match(ours[index], theirs[index])) for index in ours.keys() & theirs.keys())
        return in_order if len(in_order) > exact else None


def _by_index(node: _Node) -> dict[int, _Node] | None:
    """The numbered children; None if there are none, or if two have the same number ("7" and "07")."""
    numbered = [(index, child) for key, child in node.children.items() if (index := index_of(key)) is not None]
    found = dict(numbered)
    return found if found and len(found) == len(numbered) else None


def _counts_from_zero(indices: Collection[int]) -> bool:
    return max(indices) == len(indices) - 1


def _has_gaps(indices: Collection[int]) -> bool:
    return max(indices) - min(indices) >= len(indices)

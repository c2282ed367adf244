"""What became of applying tensors to a module."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from ..indices import index_of
from ..match import looks_like_variant, without_variants
from .prefixes import Renaming

_SHOWN = 10
_SIMILAR = 0.7
_CANDIDATES = 1000


class MissingTensor(str):
    """The path of a parameter that was not found, and `.container`: the classes around it, "Net.ModuleList.Linear"."""

    __slots__ = ("container",)
    container: str

    def __new__(cls, path: str, container: str) -> MissingTensor:
        made = super().__new__(cls, path)
        made.container = container
        return made

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]
        return str(self), self.container


class ApplyError(Exception):
    """Why one parameter could not be set. Unpacks as (path, error): `for path, error in result.errors`."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(path, message)
        self.path = path
        self.message = message

    # Any: a type checker gives both names of `path, error = ...` the one type that is said here.
    def __iter__(self) -> Iterator[Any]:
        return iter((self.path, self))

    def __str__(self) -> str:
        return self.message


class _Mismatch(ApplyError):
    def __init__(self, path: str, expected: object, found: object, message: str) -> None:
        super().__init__(path, message)
        self.args = (path, expected, found, message)
        self.expected = expected
        self.found = found


class ShapeMismatch(_Mismatch):
    """The tensor has another shape than the parameter."""


class DTypeMismatch(_Mismatch):
    """The tensor has another type than the parameter, and may not or cannot be converted."""


class AdapterError(ApplyError):
    """An adapter failed."""


class LoadError(ApplyError):
    """The tensor cannot be put into its place."""


@dataclass(repr=False)
class ApplyResult:
    """applied: parameters that were set, in the module's order. skipped: found, but not wanted by the filter. missing:
    parameters nothing was found for. unused: tensors that no parameter took. errors: tensors that did not fit."""

    applied: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    missing: list[MissingTensor] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)
    errors: list[ApplyError] = field(default_factory=list)
    #: The prefix by which missing and unused names differ, and the calls that rename them.
    renaming: Renaming = field(default_factory=Renaming, compare=False)

    def is_success(self) -> bool:
        """Whether there are no errors. Parameters may be missing."""
        return not self.errors

    def summary(self) -> str:
        """Counts, and the first ten of everything that needs attention."""
        lines = [self._counts()]
        if self.missing:
            lines.append("missing from the source:")
            lines += _first(self.missing, [self._describe_missing(path) for path in self.missing[:_SHOWN]])
            lines += [*self._prefix_hint(), *self._variant_hint(), *self._index_hint()]
        if self.unused:
            lines += ["unused tensors of the source:", *_first(self.unused, self.unused[:_SHOWN])]
        if self.errors:
            shown = [f"{error.path}: {error.message}" for error in self.errors[:_SHOWN]]
            lines += ["errors:", *_first(self.errors, shown)]
        return "\n".join(lines)

    __str__ = summary

    def __repr__(self) -> str:
        return f"<ApplyResult: {self._counts()}>"

    def _counts(self) -> str:
        titles = ("applied", "skipped", "missing", "unused", "errors")
        return ", ".join(f"{len(getattr(self, title))} {title}" for title in titles)

    def _describe_missing(self, path: MissingTensor) -> str:
        text = f"{path} (in {path.container})" if path.container else str(path)
        similar = self.did_you_mean(path)
        return text if similar is None else f"{text}; did you mean '{similar}'?"

    def did_you_mean(self, path: str) -> str | None:
        """The unused tensor that a missing parameter most probably is."""
        if path in self.renaming.found:
            return self.renaming.found[path]
        unused = self.unused
        plain = without_variants(path)
        if plain != path and plain in unused:
            return plain
        variant = next((name for name in unused if name != path and without_variants(name) == path), None)
        if variant is not None:
            return variant
        if len(unused) > _CANDIDATES:
            last = path.rpartition(".")[2]
            unused = [name for name in unused if name.rpartition(".")[2] == last][:_CANDIDATES]
        return next(iter(get_close_matches(path, unused, 1, _SIMILAR)), None)

    def _prefix_hint(self) -> list[str]:
        if not self.renaming.rules:
            return []
        return [
            f"  Names differ by a prefix. Renaming finds {len(self.renaming.found)} of the {len(self.missing)} missing ones:",
            f"    store{self.renaming.calls()}",
        ]

    def _variant_hint(self) -> list[str]:
        def has_variant(path: str) -> bool:
            return any(looks_like_variant(component) for component in path.split(".")[1:-1])

        if not any(map(has_variant, [*self.missing, *self.unused])):
            return []
        return [
            "  Some names have components in CamelCase. Burn puts the names of enum variants there, PyTorch does not: "
            "skip_enum_variants(True) passes over a variant that only one side has, with_key_remapping() renames variants."
        ]

    def _index_hint(self) -> list[str]:
        def without_numbers(path: str) -> str:
            return ".".join("0" if index_of(component) is not None else component for component in path.split("."))

        if set(map(without_numbers, self.missing)).isdisjoint(map(without_numbers, self.unused)):
            return []
        return [
            "  Some names differ only in their numbers: map_indices_contiguous(True) numbers the tensors of the file without "
            "gaps, with_key_remapping() renames them."
        ]


def _first(everything: Sequence[object], shown: Sequence[str]) -> list[str]:
    lines = [f"  {item}" for item in shown]
    if len(everything) > len(shown):
        lines.append(f"  ... and {len(everything) - len(shown)} more")
    return lines

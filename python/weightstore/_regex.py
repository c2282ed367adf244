"""Regular expressions as burn-store's users write them."""

from __future__ import annotations

import re

from . import errors

# What Rust's regex crate spells differently.
_SPELLINGS = (
    (re.compile(r"(?<!\\)((?:\\\\)*)\(\?<(?=[A-Za-z_])"), r"\1(?P<"),
    (re.compile(r"(?<!\\)((?:\\\\)*)\\z"), r"\1\\Z"),
)


def compile_regex(pattern: str | re.Pattern[str]) -> re.Pattern[str]:
    """A pattern in Python's syntax or in that of Rust's regex crate. Raises InvalidArgument, a ValueError."""
    if isinstance(pattern, re.Pattern):
        return pattern
    if not isinstance(pattern, str):
        raise TypeError(f"a regular expression is text, not {type(pattern).__name__}")
    try:
        return re.compile(pattern)
    except re.error as error:
        translated = pattern
        for spelling, ours in _SPELLINGS:
            translated = spelling.sub(ours, translated)
        try:
            return re.compile(translated)
        except re.error:
            raise errors.make("invalid_argument", f"{pattern!r} is not a regular expression: {error}") from None

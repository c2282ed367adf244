"""Regular expressions as users of Burn and of Python write them."""

from __future__ import annotations

import re
from typing import NamedTuple

from .. import errors


class Regex(NamedTuple):
    text: str  # as the user wrote it
    compiled: re.Pattern[str]


def compile_regex(pattern: str | re.Pattern[str]) -> Regex:
    """Text in the syntax of Rust's regex crate or in Python's, as rust_regex explains; a compiled pattern stays as it is.
    Raises InvalidArgument, a ValueError."""
    if isinstance(pattern, re.Pattern):
        return Regex(pattern.pattern, pattern)
    if not isinstance(pattern, str):
        raise TypeError(f"a regular expression is text, not {type(pattern).__name__}")
    from .rust_regex import Unclear, to_python  # patterns of its own, which most programs do not need

    try:
        return Regex(pattern, re.compile(to_python(pattern)))
    except Unclear as error:
        text = f"{pattern!r} is refused as a regular expression: {error}. re.compile(...) in its place means Python's syntax"
        raise errors.make("invalid_argument", text) from None
    except (re.error, OverflowError, RecursionError) as error:
        raise errors.make("invalid_argument", f"{pattern!r} is not a regular expression: {error}") from None

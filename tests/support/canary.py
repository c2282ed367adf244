"""Objects that notice when somebody unpickles them."""

from __future__ import annotations

import pathlib
from typing import Any

TRIPPED = pathlib.Path("/nonexistent")  # the test sets it


def trip(*_: Any, **__: Any) -> str:
    TRIPPED.touch()
    return "canary"


class ByReduce:
    """Its reconstruction calls trip()."""

    def __reduce__(self):
        return (trip, ())


class ByState:
    """Its state is set by a method that calls trip()."""

    def __init__(self) -> None:
        self.x = 1

    def __setstate__(self, state: Any) -> None:
        trip()


class ByNew:
    """A new object of the class calls trip()."""

    def __new__(cls, *arguments: Any, **keywords: Any):
        if arguments or keywords:
            trip()
        return super().__new__(cls)

    def __getnewargs_ex__(self):
        return (1,), {"a": 2}


class ByItems(dict):
    """Every item that is put into it calls trip(), once it is armed."""

    def __setitem__(self, key: Any, value: Any) -> None:
        if getattr(self, "armed", True):
            trip()
        super().__setitem__(key, value)

    def __reduce__(self):
        return (ByItems, (), None, None, iter([("a", 1)]))


CANARIES = (ByReduce, ByState, ByNew, ByItems)

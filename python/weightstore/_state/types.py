"""Enums and dataclasses that states may hold. A file names a type, and only types that the program registered are made."""

from __future__ import annotations

import dataclasses
import enum
from threading import Lock
from typing import Any, TypeVar

T = TypeVar("T", bound=type)

_lock = Lock()
_type_of: dict[str, type] = {}
_name_of: dict[type, str] = {}


def register_state_type(cls: T, name: str | None = None) -> T:
    """Lets `save_state` and `load_state` handle an enum or a dataclass. Can be used as a decorator.

    `load_state` makes a dataclass as pickle does: it sets the fields and calls neither `__init__` nor `__post_init__`.

    name: what the file calls the type; the class's own name by default. It must stay the same as long as there are files with
        it. Registering another class under a registered name is an error.
    """
    if not isinstance(cls, type) or not (issubclass(cls, enum.Enum) or dataclasses.is_dataclass(cls)):
        raise TypeError(f"register_state_type() takes an enum or a dataclass, not {cls!r}")
    chosen = cls.__name__ if name is None else name
    with _lock:
        other = _type_of.get(chosen, cls)
        if other is not cls and not _is_redefined(other, cls):
            raise ValueError(f"{chosen!r} is registered for {other!r}; pass another name=")
        _name_of.pop(_type_of.pop(_name_of.get(cls, ""), cls), None)
        _type_of[chosen] = cls
        _name_of[cls] = chosen
    return cls


def _is_redefined(old: type, new: type) -> bool:
    """Whether a class was defined again, as by running a cell of a notebook twice."""
    return (old.__module__, old.__qualname__) == (new.__module__, new.__qualname__)


def name_of(cls: type) -> str | None:
    """The registered name of a type; None if it has none."""
    return _name_of.get(cls)


def type_of(name: Any) -> type | None:
    """The type of a registered name; None if there is none."""
    return _type_of.get(name) if isinstance(name, str) else None


def make_dataclass(cls: type, fields: dict[str, Any]) -> Any:
    """Raises ValueError if the fields are not those of the class."""
    expected = {field.name for field in dataclasses.fields(cls)}
    if fields.keys() != expected:
        differing = ", ".join(sorted(fields.keys() ^ expected))
        raise ValueError(f"the fields of {cls.__name__} have changed since it was saved: {differing}")
    made: Any = object.__new__(cls)
    for name, value in fields.items():
        object.__setattr__(made, name, value)
    return made

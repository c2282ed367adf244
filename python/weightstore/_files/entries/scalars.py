"""Burnpack's named scalars."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ... import _core

Scalar = int | float | bool


class Scalars(dict[str, Scalar]):
    """The scalars of a file: names to numbers and truth values. It also knows which whole numbers the file stores without a
    sign, so that a copy of the scalars is stored as they were."""

    def __init__(self, values: Mapping[str, Scalar] = {}, unsigned: Iterable[str] = ()) -> None:
        super().__init__(values)
        self.unsigned = frozenset(unsigned)


def scalars_of(reader: _core.Reader) -> Scalars:
    return Scalars(reader.scalars(), reader.unsigned_scalars())


def add_scalars(writer: _core.Writer, scalars: Mapping[str, Scalar]) -> None:
    unsigned = scalars.unsigned if isinstance(scalars, Scalars) else ()
    for name, value in scalars.items():
        writer.set_scalar(name, value, unsigned=name in unsigned)

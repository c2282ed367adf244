"""Burnpack files, Burn's own."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from .. import _core
from .._param_ids import default_id
from .._save import Scalar
from .._snapshot import TensorSnapshot
from ._writing import WritingStore


class BurnpackStore(WritingStore):
    """Keeps modules in Burnpack files. Ids of parameters are saved and restored.

    A path without an ending gets `.bpk`, unless auto_extension(False).
    """

    _format = "burnpack"
    _extension = ".bpk"
    _default_metadata: ClassVar[dict[str, str]] = {"format": "burnpack", "producer": "weightstore"}
    # Burn knows nothing of other names in the metadata: it looks for every name.
    _ties_once = False

    def __init__(self, path: str | None, data: Any) -> None:
        super().__init__(path, data)
        self._auto_extension = path is not None
        self._scalars: dict[str, Scalar] = {}

    def scalar(self, key: str, value: Scalar) -> Self:
        """Adds a named number or truth value to what is saved."""
        if not isinstance(key, str) or not isinstance(value, (int, float)):
            raise TypeError(f"a scalar has a name and is an int, a float or a bool: not {key!r}, {value!r}")
        self._scalars[key] = value
        return self

    def get_scalars(self) -> dict[str, Scalar]:
        """The scalars of the file."""
        with self._placing():
            return self._read().file.scalars

    def _id(self, snapshot: TensorSnapshot) -> int | None:
        return default_id(snapshot.full_path) if snapshot.param_id is None else snapshot.param_id

    def _add_scalars(self, writer: _core.Writer) -> None:
        for name, value in self._scalars.items():
            writer.set_scalar(name, value)

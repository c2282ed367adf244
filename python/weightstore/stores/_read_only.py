"""Stores over files that are only read."""

from __future__ import annotations

from typing import Any, Literal, NoReturn, Self

from .. import errors
from ._reading import ReadingStore


class ReadOnlyStore(ReadingStore):
    """Reads a file that may have been written by torch.save()."""

    def __init__(self, path: str | None, data: Any) -> None:
        super().__init__(path, data)
        self._opaque: Literal["error", "skip"] = "skip"

    def opaque(self, opaque: Literal["error", "skip"]) -> Self:
        """What to do about values that are neither tensors nor plain data: "skip" (the default) leaves them out and names them
        in a warning of the log, "error" refuses the file and names the first of them."""
        if opaque not in ("error", "skip"):
            raise errors.make("invalid_argument", f"opaque is {opaque!r}; it is 'error' or 'skip'", format=self._format)
        self._opaque = opaque
        return self._changed()

    def _open_options(self) -> dict[str, Any]:
        return {**super()._open_options(), "opaque": self._opaque}

    def collect_from(self, module: Any) -> NoReturn:
        """Always an error: this store only reads."""
        raise errors.make(
            "invalid_argument",
            f"{type(self).__name__} reads files and does not write them; save into a SafetensorsStore or a BurnpackStore",
            format=self._format,
            path=self._path,
        )

"""Files of torch.save."""

from __future__ import annotations

from typing import Any, Literal, NoReturn, Self

from .. import errors
from ._reading import ReadingStore


class PytorchStore(ReadingStore):
    """Loads modules from files that torch.save wrote: state dicts, checkpoints and whole models. Nothing in a file is
    executed. Saving is for SafetensorsStore and BurnpackStore.

    map_indices_contiguous is "auto" and skip_enum_variants is True unless said otherwise.
    """

    _format = "pytorch"
    _extension = ".pt"

    def __init__(self, path: str | None, data: Any) -> None:
        super().__init__(path, data)
        self._map_indices = "auto"
        self._skip_enum_variants = True
        self._opaque: Literal["error", "skip"] = "error"
        self._checksums = False

    def opaque(self, opaque: Literal["error", "skip"]) -> Self:
        """What becomes of objects in the file that are neither tensors nor plain data: "error" names the first of them,
        "skip" passes over all."""
        if opaque not in ("error", "skip"):
            raise errors.make("invalid_argument", f"opaque is {opaque!r}; it is 'error' or 'skip'", format=self._format)
        self._opaque = opaque
        return self._changed()

    def checksums(self, enable: bool) -> Self:
        """Whether the checksums of an archive are compared with what is read."""
        self._checksums = bool(enable)
        return self._changed()

    def _open_options(self) -> dict[str, Any]:
        return {"opaque": self._opaque, "verify": "lazy" if self._checksums else "off"}

    def collect_from(self, module: Any) -> NoReturn:
        """Always an error: this format is only read."""
        raise errors.make(
            "invalid_argument",
            "files of torch.save are read, not written; save into a SafetensorsStore or a BurnpackStore",
            format=self._format,
            path=self._path,
        )

"""Files of any format."""

from __future__ import annotations

from typing import Any, NoReturn

from .. import errors
from .._files.file import File, source_of
from .._files.source import OpenSource
from ._read_only import ReadOnlyStore
from ._reading import ReadingStore, store_of


class FileStore(ReadOnlyStore):
    """Loads modules from a file of any format that weightstore reads; the content of the file tells the format.

    Options that you do not set are those of the format's own store. So a file of torch.save() loads as with PytorchStore.
    """

    _format = ""  # known when the file is open
    _data: Any  # bytes, or an open File

    def auto_extension(self, enable: bool) -> NoReturn:
        """Always an error: an ending stands for a format, and this store has none."""
        raise errors.make("invalid_argument", "a FileStore has no ending to add; give the whole name of the file")

    def _open(self) -> OpenSource:
        return source_of(self._data) if isinstance(self._data, File) else super()._open()

    def _check_format(self, source: OpenSource) -> None:
        self._format = source.format

    def _defaults(self) -> type[ReadingStore]:
        return store_of(self._format)

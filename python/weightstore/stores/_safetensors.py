"""SafeTensors files and sets of shards."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from .. import errors
from .._files.formats import INDEX, INDEX_ENDING
from .._files.sizes import Size, parse_size
from ._writing import WritingStore


class SafetensorsStore(WritingStore):
    """Keeps modules in SafeTensors files. A path that ends in `.safetensors.index.json` is a set of shards.

    Tied tensors are written once; the metadata has their other names, as `save_model` of the safetensors package does.
    """

    _format = "safetensors"
    _default_metadata: ClassVar[dict[str, str]] = {"format": "pt", "producer": "weightstore"}
    _ties_once = True

    def __init__(self, path: str | None, data: Any) -> None:
        super().__init__(path, data)
        self._max_shard_size: Size | None = None

    def max_shard_size(self, size: Size) -> Self:
        """Saving writes a file that is larger than this as shards of at most this size, and an index. size: bytes, or text such
        as "5GB" or "5GiB"."""
        if self._path is None:
            raise errors.make("invalid_argument", "a store over bytes is never sharded", format=self._format)
        with self._placing():
            parse_size(size, "max_shard_size")
        self._max_shard_size = size
        return self

    def _format_options(self) -> dict[str, Any]:
        sharded = self._path is not None and self._file_path().lower().endswith(INDEX_ENDING)
        return {"format": INDEX if sharded else self._format, "max_shard_size": self._max_shard_size}

"""SafeTensors files and sets of shards."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from .. import errors
from .._files import saving
from .._files.sizes import parse_size
from ._writing import WritingStore


class SafetensorsStore(WritingStore):
    """Keeps modules in SafeTensors files. A path that ends in `.safetensors.index.json` is a set of shards.

    Tied tensors are written once; the metadata has their other names, as `save_model` of the safetensors package does.
    """

    _format = "safetensors"
    _extension = ".safetensors"
    _default_metadata: ClassVar[dict[str, str]] = {"format": "pt", "producer": "weightstore"}
    _ties_once = True

    def __init__(self, path: str | None, data: Any) -> None:
        super().__init__(path, data)
        self._max_shard_size: int | str | None = None

    def max_shard_size(self, size: int | str) -> Self:
        """Saving to a path, a larger file becomes shards of at most "5GB" (or so many bytes) and an index."""
        if self._path is None:
            raise errors.make("invalid_argument", "a store over bytes is never sharded", format=self._format)
        with self._placing():
            parse_size(size)
        self._max_shard_size = size
        return self

    def _format_options(self) -> dict[str, Any]:
        sharded = self._path is not None and self._file_path().lower().endswith(saving.INDEX_ENDING)
        return {"format": "safetensors index" if sharded else self._format, "max_shard_size": self._max_shard_size}

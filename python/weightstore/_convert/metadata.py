"""`weightstore.set_metadata`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping

from .. import _core, errors
from .._files.formats import INDEX_ENDING
from .._files.paths import check_local
from .._files.progress import Progress, reporting
from .._files.source import open_source
from .._files.text_file import replace_text


def set_metadata(
    path: str | os.PathLike[str],
    entries: Mapping[str, str],
    *,
    remove: Iterable[str] = (),
    durable: bool = True,
    progress: Progress | bool | None = None,
) -> None:
    """Adds or replaces metadata entries of a SafeTensors or Burnpack file, or of the index of a set of shards, and removes those
    that `remove` names. The tensors stay as they are.

    A new file takes the place of the old one when it is complete. The system copies the data of the tensors, and shares it
    between the files where the file system can. Raises InvalidArgument for files of other formats, and for an entry of `remove`
    that is not there.
    """
    check_local(os.fspath(path), "save")
    removed = [remove] if isinstance(remove, str) else list(remove)
    for key, value in entries.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"metadata maps str to str, not {key!r} to {value!r}")
    if both := sorted(set(removed) & set(entries)):
        raise errors.make("invalid_argument", f"{both[0]!r} is both set and removed", path=os.fsdecode(path))
    if os.fsdecode(path).lower().endswith(INDEX_ENDING):
        with open_source(path):  # which checks the whole set
            _set_in_index(os.fsdecode(path), entries, removed, durable)
        return
    with reporting(progress) as report:
        _core.set_metadata(path, list(entries.items()), removed, durable=durable, progress=report)


def _set_in_index(path: str, entries: Mapping[str, str], removed: list[str], durable: bool) -> None:
    with open(path, encoding="utf-8") as file:
        index = json.load(file)
    metadata = dict(index.get("metadata") or {})
    for key in removed:
        if key not in metadata:
            raise errors.make("invalid_argument", f"there is no metadata entry {key!r} to remove", path=path)
        del metadata[key]
    index["metadata"] = {**metadata, **entries}
    replace_text(path, json.dumps(index, indent=2, ensure_ascii=False) + "\n", durable=durable)

"""Whether a file, a set or a checkpoint is whole."""

from __future__ import annotations

import os
from typing import Any, Literal, NamedTuple

from .. import _core
from .._files.file import open as open_file
from .._files.file import source_of
from .._files.progress import Progress, reporting
from .._files.source import Opaque
from .manifest import check_manifest, write_manifest


class Verification(NamedTuple):
    """tensors: how many there are. checksums: how many checksums were compared, and are right.
    unchecked: how many tensors have no checksum.
    files: how many files there are: in the manifest, or with the tensors.
    manifest: whether the list of SHA-256 sums was "written" or "checked"; None without one.
    """

    tensors: int
    checksums: int
    unchecked: int
    files: int
    manifest: Literal["written", "checked"] | None

    @property
    def is_sound(self) -> bool:
        """Whether every tensor has a checksum that is right, or all bytes are in a manifest."""
        return self.manifest is not None or not self.unchecked

    def as_dict(self) -> dict[str, Any]:
        """Plain data: for JSON."""
        return {"sound": self.is_sound, **self._asdict()}


def verify(
    path: str | os.PathLike[str],
    *,
    manifest: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    opaque: Opaque = "skip",
    progress: Progress | bool | None = None,
) -> Verification:
    """Checks the structure of a file, a set or a checkpoint, that all its files are there, and the checksums that it carries. Raises
    FormatError at the first thing that is wrong.

    manifest: a list of SHA-256 sums, in the form of `sha256sum`. If the list is not there, or `overwrite` is True, it is written;
        otherwise the files are compared with it. It covers the files that hold the tensors and the index; for a directory, all
        files in it.
    """
    with open_file(path, opaque=opaque, backend="pread") as file, reporting(progress) as report:
        checksums = file.verify(progress=report)
        unchecked, tensors = len(source_of(file).reader.without_checksum()), len(file)
        files = _core.files(source_of(file).reader)
        done: Literal["written", "checked"] | None = None
        if manifest is not None:
            target = os.path.abspath(os.fsdecode(manifest))
            files = _files_of(os.fsdecode(path), files, target)
            is_new = overwrite or not os.path.lexists(target)
            (write_manifest if is_new else check_manifest)(target, files, report)
            done = "written" if is_new else "checked"
    return Verification(tensors, checksums, unchecked, len(files), done)


def _files_of(path: str, files: list[str], manifest: str) -> list[str]:
    """What a manifest covers: all files of a directory, or the files that hold the tensors and the one that was opened."""
    if os.path.isdir(path):
        found = [os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names]
    else:
        found = [path, *files]
    unique = {os.path.abspath(file): None for file in found}
    unique.pop(manifest, None)
    return sorted(unique)

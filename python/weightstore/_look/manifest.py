"""Lists of SHA-256 sums, in the form that `sha256sum` writes and checks."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import Any

from .. import errors
from .._files.progress import Progress
from .._files.text_file import replace_text

_LINE = re.compile(r"(\\?)([0-9a-f]{64}) [ *](.+)", re.DOTALL)
_CHUNK = 1 << 20


def write_manifest(manifest: str, files: Sequence[str], progress: Progress | None = None) -> None:
    """Writes the sums of files. Names are relative to the directory of the list, where `sha256sum -c` is run."""
    sums = _sums(files, progress)
    lines = sorted(_line(_relative(file, manifest), sum) for file, sum in zip(files, sums, strict=True))
    replace_text(manifest, "".join(lines))


def check_manifest(manifest: str, files: Sequence[str], progress: Progress | None = None) -> None:
    """Compares files with a list. Raises FormatError that names the first file that differs, is gone or is not in the list."""
    listed = read_manifest(manifest)
    by_name = {_relative(file, manifest): file for file in files}
    for name in listed:
        if name not in by_name:
            path = os.path.join(os.path.dirname(manifest), name)
            if not os.path.isfile(path):
                raise errors.make("corrupt", f"{name!r} is in the list but not there", path=manifest)
            by_name[name] = path
    if unlisted := sorted(set(by_name) - set(listed)):
        raise errors.make("corrupt", f"{unlisted[0]!r} is not in the list", path=manifest)
    names = sorted(by_name)
    for name, found in zip(names, _sums([by_name[name] for name in names], progress), strict=True):
        if found != listed[name]:
            text = f"the file has the SHA-256 {found}, and the list {manifest} has {listed[name]}"
            raise errors.make("corrupt", text, path=by_name[name])


def read_manifest(manifest: str) -> dict[str, str]:
    """Names of files to their sums."""
    with open(manifest, encoding="utf-8", errors="surrogateescape", newline="\n") as file:
        lines = file.read().split("\n")
    listed = {}
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise errors.make("corrupt", f"line {number} is not a SHA-256 sum and a name", path=manifest)
        escaped, sum, name = match.groups()
        listed[_unescape(name) if escaped else name] = sum
    if not listed:
        raise errors.make("corrupt", "the list is empty", path=manifest)
    return listed


def _relative(file: str, manifest: str) -> str:
    return os.path.relpath(file, os.path.dirname(manifest) or ".")


def _line(name: str, sum: str) -> str:
    escaped = name.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return f"{'' if escaped == name else chr(92)}{sum}  {escaped}\n"


def _unescape(name: str) -> str:
    return re.sub(r"\\(.)", lambda match: {"n": "\n", "r": "\r"}.get(match[1], match[1]), name)


def _sums(files: Sequence[str], progress: Progress | None) -> list[str]:
    """The sums of files, several at a time."""
    from concurrent.futures import ThreadPoolExecutor, wait
    from hashlib import sha256
    from threading import Event, Lock

    total, done, lock, stop = sum(map(os.path.getsize, files)), [0], Lock(), Event()

    def hash_file(path: str) -> str:
        digest = sha256()
        with open(path, "rb", buffering=0) as file:
            buffer = bytearray(_CHUNK)
            while (count := file.readinto(buffer)) and not stop.is_set():
                digest.update(memoryview(buffer)[:count])
                with lock:
                    done[0] += count
        return digest.hexdigest()

    with ThreadPoolExecutor(max(2, min(8, os.cpu_count() or 1))) as pool:
        futures = [pool.submit(hash_file, path) for path in files]
        try:
            while wait(futures, timeout=0.05).not_done:
                _tell(progress, min(done[0], total - 1), total)
        except BaseException:
            stop.set()
            raise
        _tell(progress, total, total)
        return [future.result() for future in futures]


def _tell(progress: Callable[[int, int, str], Any] | None, done: int, total: int) -> None:
    if progress is not None and progress(done, total, "") is False:
        raise errors.make("cancelled", "the progress callback asked to stop")

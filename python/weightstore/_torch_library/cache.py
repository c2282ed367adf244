"""The directory of the user in which built libraries are kept.

What lies there is loaded into every process of the user that needs it. So the directory, and every directory above it,
must be such that nobody else can put a file there.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from .._core import __version__
from .running_torch import RunningTorch

VARIABLE = "WEIGHTSTORE_CACHE_DIR"
_ABANDONED_SECONDS = 24 * 3600
_UNFINISHED = ".building-"


def root() -> Path:
    """The cache of weightstore: $WEIGHTSTORE_CACHE_DIR, or `weightstore` in the user's directory for caches."""
    if chosen := os.environ.get(VARIABLE):
        return Path(chosen).resolve()
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(xdg):
        place = Path(xdg)
    else:
        place = Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")
    return (place / "weightstore").resolve()


def directory_for(torch: RunningTorch) -> Path:
    """Where the library for that torch is kept. Its name says all that a library must fit."""
    platform = sysconfig.get_config_var("MULTIARCH") or sysconfig.get_platform()
    abi = "old-abi" if torch.old_abi else "new-abi"
    key = f"weightstore-{__version__}-torch-{torch.version}-{abi}-{platform}"
    return root() / "torch_library" / re.sub(r"[^A-Za-z0-9.+_-]", "_", key)


def why_unsafe(path: Path) -> str | None:
    """Why another user could have written a file, or put another in its place; None if nobody could."""
    for place in (path, *path.parents):
        if problem := _writable_by_others(os.lstat(place), place, os.getuid()):
            return problem
    return None


def make_directory(directory: Path) -> None:
    """Makes a directory and those above it for the user alone."""
    for missing in reversed([path for path in (directory, *directory.parents) if not path.exists()]):
        with contextlib.suppress(FileExistsError):
            missing.mkdir(mode=0o700)


@contextlib.contextmanager
def unfinished(directory: Path) -> Iterator[Path]:
    """A new directory beside `directory`, in which a library is built. It is removed at the end, with whatever is in it."""
    make_directory(directory.parent)
    _remove_abandoned(directory.parent)
    work = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=directory.parent))
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def publish(work: Path, directory: Path, *, replace: bool = False) -> None:
    """Gives the finished directory `work` its name. What another process published meanwhile stays, unless `replace`."""
    for path in (*work.iterdir(), work):
        with _opened(path) as descriptor:
            os.fsync(descriptor)
    if replace and directory.exists():
        old = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=directory.parent))
        with contextlib.suppress(FileNotFoundError):  # another process replaces it, too
            directory.rename(old / "old")
        shutil.rmtree(old, ignore_errors=True)
    try:
        work.rename(directory)
    except OSError:
        if not directory.is_dir():
            raise
    with _opened(directory.parent) as descriptor:
        os.fsync(descriptor)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _remove_abandoned(directory: Path) -> None:
    """Removes what builds left that were killed."""
    for path in directory.glob(f"{_UNFINISHED}*"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - path.lstat().st_mtime > _ABANDONED_SECONDS:
                shutil.rmtree(path, ignore_errors=True)


def _writable_by_others(status: os.stat_result, path: Path, me: int) -> str | None:
    if stat.S_ISLNK(status.st_mode):
        return f"{path} is a symbolic link; remove it"
    if status.st_uid != me and (status.st_uid != 0 or stat.S_ISREG(status.st_mode)):
        return f"{path} belongs to the user with the number {status.st_uid}, and not to you ({me})"
    sticky_directory = stat.S_ISDIR(status.st_mode) and bool(status.st_mode & stat.S_ISVTX)
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not sticky_directory:
        return f"other users can write to {path}; `chmod go-w {path}` changes that"
    return None

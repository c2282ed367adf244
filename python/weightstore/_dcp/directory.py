"""The directory of a checkpoint, and how a save replaces what is in it. Only the coordinator uses this.

 1. `begin` removes what dead saves left beside the target, refuses to go on where another save is at work or where files of
    others are in the way, and makes a staging directory beside the target. The staging directory has a file that stays locked
    as long as the save lives.
 2. The ranks write their files into the staging directory, and sync them.
 3. `commit` writes what is left (headers, indexes, the caller's files), links the target's other files into the staging
    directory, syncs it, and exchanges the two directories. This is the commit: whoever opens the target finds the old
    checkpoint or the new one, complete.
 4. Then it moves what others have put into the old directory meanwhile to the new one, and removes the old directory.

Where the file system cannot exchange names, the target is renamed first, and for a moment there is none; `begin` puts it back if
the process died just then. A save that dies before step 3 leaves the target as it was.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import stat
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import IO

from .. import _core, errors
from .._chunks import index as index_file
from .._chunks.layout import INDEX_NAME
from .._files.paths import check_local

_SUFFIX = ".weightstore-staging"
_OLD = ".weightstore-old"
_LEASE = ".lease"


class Staging:
    """One save. Used by one thread. Dropped before `commit`, it removes its directory."""

    def __init__(self, target: str, save: str, lease: int, *, overwrite: bool, durable: bool) -> None:
        self.target = target
        self.save = save
        self.path = _staging_path(target, save)
        self._lease: int | None = lease  # a descriptor
        self._process = os.getpid()
        self._overwrite = overwrite
        self._durable = durable
        self._thread = threading.current_thread()

    def __del__(self) -> None:
        if self._lease is not None and self._process == os.getpid():
            self.abandon()

    @property
    def is_over(self) -> bool:
        """Whether the thread that began the save can no longer be in it: it is this one, or it has ended."""
        return self._thread is threading.current_thread() or not self._thread.is_alive()

    def path_of(self, name: str) -> str:
        return os.path.join(self.path, name)

    def write(self, name: str, data: bytes) -> None:
        """A small file, or a new one in place of it."""
        with open(self.path_of(name), "wb") as file:
            file.write(data)
            self._sync(file.fileno(), file)

    def sync(self, names: Iterable[str]) -> None:
        """Syncs files that ranks wrote, if the save is durable."""
        if self._durable:
            _core.sync_files([self.path_of(name) for name in names])

    def commit(self) -> None:
        """Puts the staging directory in the place of the target."""
        own = _own_files(self.target)
        dropped = own | (_set_of_others(self.target) if self._overwrite else set())
        self._check_names(dropped)
        _carry_over(self.target, self.path, dropped)
        os.unlink(self.path_of(_LEASE))
        self._sync_directory(self.path)
        if not os.path.lexists(self.target):
            os.rename(self.path, self.target)
            self._sync_directory(os.path.dirname(self.target))
            self.release()
            return
        old = self.path
        if not _core.exchange(self.path, self.target):
            old = self.path.removesuffix(_SUFFIX) + _OLD
            os.rename(self.target, old)
            os.rename(self.path, self.target)
        self._sync_directory(os.path.dirname(self.target))
        self.release()
        _retire(old, self.target, dropped)

    def abandon(self) -> None:
        """Removes the staging directory. What cannot be removed is left to the next save."""
        self.release()
        shutil.rmtree(self.path, ignore_errors=True)

    def release(self) -> None:
        """Gives up the lock: for others, the save is over."""
        if self._lease is not None:
            os.close(self._lease)
            self._lease = None
        if _running.get(self.target) is self:
            del _running[self.target]

    def _check_names(self, dropped: set[str]) -> None:
        for name in os.listdir(self.path):
            if name != _LEASE and name not in dropped and not self._overwrite and _is_ours_to_name(name):
                _refuse_taken(self.target, name)

    def _sync(self, descriptor: int, file: IO[bytes]) -> None:
        file.flush()
        if self._durable:
            os.fsync(descriptor)

    def _sync_directory(self, path: str) -> None:
        if not self._durable:
            return
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


# By target, in this process.
_running: weakref.WeakValueDictionary[str, Staging] = weakref.WeakValueDictionary()


def begin(target: str | os.PathLike[str], *, overwrite: bool, durable: bool) -> Staging:
    """Step 1."""
    path = resolved(target)
    parent, name = os.path.split(path)
    os.makedirs(parent, exist_ok=True)
    if os.path.lexists(path) and not os.path.isdir(path):
        raise errors.make("conflict", "this is no directory; a checkpoint is one", path=path)
    running = _running.get(path)
    if running is not None and running.is_over:
        running.abandon()
    _clean_up(parent, name, path)
    if not overwrite:
        others = _set_of_others(path) - _own_files(path)
        if others:
            _refuse_others(path, min(others))
    if os.path.isdir(path) and os.path.samefile(path, os.curdir):
        text = "a save replaces the directory, which cannot be the current one; give a directory inside it"
        raise errors.make("invalid_argument", text, path=path)
    save = secrets.token_hex(8)
    staging = _staging_path(path, save)
    os.mkdir(staging)
    if os.path.isdir(path):
        os.chmod(staging, stat.S_IMODE(os.stat(path).st_mode))
    lease = os.open(os.path.join(staging, _LEASE), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
    fcntl.flock(lease, fcntl.LOCK_EX | fcntl.LOCK_NB)
    begun = Staging(path, save, lease, overwrite=overwrite, durable=durable)
    _running[path] = begun
    return begun


def _staging_path(target: str, save: str) -> str:
    parent, name = os.path.split(target)
    return os.path.join(parent, f".{name}~{save}{_SUFFIX}")


def resolved(target: str | os.PathLike[str]) -> str:
    """The absolute path of a directory, through symlinks: a link to a directory stays one."""
    text = os.fspath(target)
    check_local(text, "checkpoint")
    return os.path.realpath(text)


def _clean_up(parent: str, name: str, target: str) -> None:
    """Removes the staging directories of saves into the target that have died. Raises ConflictError if one is alive."""
    prefix = f".{name}~"
    for entry in os.listdir(parent):
        if not entry.startswith(prefix):
            continue
        path = os.path.join(parent, entry)
        if entry.endswith(_OLD):
            if not os.path.lexists(target):
                os.rename(path, target)  # the save died between two renames
            else:
                _retire(path, target, _own_files(path))
        elif entry.endswith(_SUFFIX):
            if not _is_dead(path):
                raise errors.make(
                    "conflict",
                    f"another save into this directory is at work, in '{path}'; wait for it, or end its process",
                    path=target,
                )
            if _is_unfinished(path, entry[len(prefix) : -len(_SUFFIX)]) or not os.path.isdir(target):
                shutil.rmtree(path, ignore_errors=True)
            else:
                _retire(path, target, _own_files(path))  # the old checkpoint; the save died after the exchange


def _is_dead(staging: str) -> bool:
    try:
        with open(os.path.join(staging, _LEASE), "rb") as lease:
            fcntl.flock(lease, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _is_unfinished(staging: str, save: str) -> bool:
    """Whether a staging directory has the files of the save whose name it bears, and not those that the save replaced."""
    if os.path.exists(os.path.join(staging, _LEASE)):
        return True
    try:
        return index_file.read(os.path.join(staging, index_file.NAME)).save == save
    except (OSError, errors.StoreError):
        return False


# ---- whose file it is ------------------------------------------------------------------------------------------------


def _own_files(directory: str) -> set[str]:
    """What weightstore wrote: the index, the files that it names, and Hugging Face's index of them. What the caller put in with
    files= belongs to the caller."""
    path = os.path.join(directory, index_file.NAME)
    if not os.path.exists(path):
        return set()
    try:
        index = index_file.read(path)
    except errors.StoreError:
        return {index_file.NAME}
    return {index_file.NAME, *index.files, *([INDEX_NAME] if index.layout == "whole" else [])}


def _set_of_others(directory: str) -> set[str]:
    """The files of a model in the directory that have the names we give, or that Hugging Face's index names."""
    if not os.path.isdir(directory):
        return set()
    names = {name for name in os.listdir(directory) if _is_ours_to_name(name)}
    try:
        with open(os.path.join(directory, INDEX_NAME), "rb") as file:
            weights = json.loads(file.read(1 << 28))["weight_map"]
        names |= {file for file in weights.values() if os.path.basename(file) == file}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        pass
    return names


def _is_ours_to_name(name: str) -> bool:
    if name in ("model.safetensors", INDEX_NAME, index_file.NAME):
        return True
    is_shard = name.startswith(("model-", "shard-")) and "-of-" in name and name.endswith(".safetensors")
    return is_shard or (name.startswith("objects-") and name.endswith(".weightstore"))


def _refuse_others(directory: str, name: str) -> None:
    raise errors.make(
        "conflict",
        f"the directory has '{name}', a part of a model that another program wrote; save into another directory, or "
        "replace that model with overwrite=True",
        path=directory,
    )


def _refuse_taken(directory: str, name: str) -> None:
    path = os.path.join(directory, name)
    if os.path.lexists(path):
        raise errors.make("conflict", "another program wrote this file during the save; move it away", path=path)


# ---- files that are not ours -----------------------------------------------------------------------------------------


def _carry_over(source: str, target: str, dropped: set[str]) -> None:
    """Links everything in `source` into `target` but the names `dropped`, and names that are there already."""
    for entry in _entries(source):
        if entry.name in dropped:
            continue
        to = os.path.join(target, entry.name)
        if entry.is_dir(follow_symlinks=False):
            if not os.path.lexists(to):
                os.mkdir(to)
                shutil.copystat(entry.path, to)
            _carry_over(entry.path, to, set())
        elif not os.path.lexists(to):
            _link(entry, to)


def _link(entry: os.DirEntry[str], to: str) -> None:
    if entry.is_symlink():
        os.symlink(os.readlink(entry.path), to)
        return
    try:
        os.link(entry.path, to)
    except OSError:  # not every file system can
        if entry.is_file():
            shutil.copy2(entry.path, to)


def _retire(old: str, target: str, dropped: set[str]) -> None:
    """Removes the old directory. What it has that the target lacks, and that is not a part of the old checkpoint, came there
    during the commit, and goes to the target."""
    _carry_over(old, target, dropped | {_LEASE})
    shutil.rmtree(old, ignore_errors=True)


def _entries(directory: str) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            yield from entries
    except FileNotFoundError:
        return


def check_files(files: Mapping[str, bytes | str] | None) -> dict[str, bytes]:
    """The caller's files, as bytes. Raises InvalidArgument for names that are no names of files, or that we give ourselves."""
    result = {}
    for name, data in (files or {}).items():
        if not isinstance(name, str) or not isinstance(data, (bytes, str)):
            raise TypeError(f"files maps names to bytes or text, but has {errors.typed(name)} and {errors.typed(data)}")
        if not name or name in (".", "..") or "/" in name or "\0" in name:
            raise errors.make("invalid_argument", f"files: '{name}' is not the name of a file in the checkpoint")
        if name == _LEASE or _is_ours_to_name(name):
            raise errors.make("invalid_argument", f"files: '{name}' is a name that weightstore gives; choose another")
        result[name] = data.encode() if isinstance(data, str) else data
    return result

"""The directory of a run: one directory a step, which appears and goes as a whole.

    .weightstore.lock                        held by a save, from its beginning until it has pruned
    step-00001000/                           a complete step
    .step-00002000~0123456789abcdef.staging  a step that is being written, or that a killed save left
    .step-00000500~0123456789abcdef.removed  a step that is being removed, or that a killed save left

A save writes into a staging directory, and renames it to the name of the step: this is the commit. Who reads a step has a shared lock
on its file `step.json`. A step is removed only with the exclusive lock: it is renamed first, then its files are removed. So whoever sees
a directory of a step sees all of it. Everything else that has our names is dead if the lock of the run is free, and the next save
removes it.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from .. import _core, errors
from .._files.paths import check_local
from . import locks
from .step_files import STEP_FILE

INDEX = "model.safetensors.index.json"
LOCK = ".weightstore.lock"
_STEP = re.compile(r"step-(\d{8,})")
_DEAD = re.compile(r"\.step-\d{8,}~[0-9a-f]{16}\.(staging|removed)")


class RunDirectory:
    """path: an absolute path. The directory need not exist before the first save."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        text = os.fspath(path)
        if not isinstance(text, str):
            raise TypeError(f"the directory of a run is a str or an os.PathLike of str, not {errors.typed(text)}")
        check_local(text, "checkpoint")
        self.path = os.path.abspath(text)

    def path_of(self, step: int) -> str:
        return os.path.join(self.path, _name(step))

    def has(self, step: int) -> bool:
        path = self.path_of(step)
        return all(os.path.exists(os.path.join(path, name)) for name in (STEP_FILE, INDEX))

    def steps(self) -> list[int]:
        """The steps that are complete, in order."""
        try:
            names = os.listdir(self.path)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _failed(error, self.path) from None
        numbers = [int(found.group(1)) for name in names if (found := _STEP.fullmatch(name))]
        return sorted(step for step in numbers if os.path.basename(self.path_of(step)) in names and self.has(step))

    # ---- for who saves ---------------------------------------------------------------------------------------------

    def lock(self) -> locks.FileLock:
        """Raises ConflictError if another save is at work."""
        path = os.path.join(self.path, LOCK)
        try:
            os.makedirs(self.path, exist_ok=True)
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666))
            lock = locks.take(path, exclusive=True)
        except OSError as error:
            raise _failed(error, self.path) from None
        if lock is None:
            text = "another process, or another manager of this one, saves into this directory; wait for it, or end it"
            raise errors.make("conflict", text, path=self.path, format="checkpoint")
        return lock

    def tidy(self) -> None:
        """Removes what killed saves left. The caller has the lock."""
        for name in os.listdir(self.path):
            if _DEAD.fullmatch(name):
                shutil.rmtree(os.path.join(self.path, name), ignore_errors=True)

    def begin(self, step: int, *, overwrite: bool) -> str:
        """A new staging directory. The caller has the lock."""
        if not overwrite and os.path.lexists(self.path_of(step)):
            text = f"step {step} is there already; save another step, or pass overwrite=True"
            raise errors.make("conflict", text, path=self.path_of(step), format="checkpoint")
        staging = self._hidden(step, "staging")
        try:
            os.mkdir(staging)
        except OSError as error:
            raise _failed(error, staging) from None
        return staging

    def commit(self, staging: str, step: int, *, durable: bool) -> None:
        """Makes a staging directory the directory of the step. Everything in it is there, and synced if it shall be durable."""
        path = self.path_of(step)
        try:
            if durable:
                _sync(staging)
            if os.path.lexists(path):
                self._replace(staging, step)
            else:
                os.rename(staging, path)
            if durable:
                _sync(self.path)
        except OSError as error:
            raise _failed(error, path) from None

    def _replace(self, staging: str, step: int) -> None:
        path = self.path_of(step)
        lock = self._to_remove(step)
        if lock is None:
            text = "the step shall be replaced, and is being read; save it again later"
            raise errors.make("conflict", text, path=path, format="checkpoint")
        try:
            old = staging
            if not _core.exchange(staging, path):
                old = self._hidden(step, "removed")
                os.rename(path, old)
                os.rename(staging, path)
        finally:
            lock.release()
        shutil.rmtree(old, ignore_errors=True)

    def remove(self, step: int) -> bool:
        """False if the step is being read, or is not there. The caller has the lock of the run."""
        try:
            lock = self._to_remove(step)
        except FileNotFoundError:
            return False
        if lock is None:
            return False
        hidden = self._hidden(step, "removed")
        try:
            os.rename(self.path_of(step), hidden)
        finally:
            lock.release()
        shutil.rmtree(hidden, ignore_errors=True)
        return True

    def _to_remove(self, step: int) -> locks.FileLock | None:
        return locks.take(os.path.join(self.path_of(step), STEP_FILE), exclusive=True)

    def _hidden(self, step: int, ending: str) -> str:
        return os.path.join(self.path, f".{_name(step)}~{secrets.token_hex(8)}.{ending}")

    # ---- for who reads ---------------------------------------------------------------------------------------------

    @contextmanager
    def reading(self, step: int) -> Iterator[str]:
        """The directory of a step, which stays meanwhile. Raises TensorNotFound, with the steps that are there."""
        path = self.path_of(step)
        try:
            lock = locks.take(os.path.join(path, STEP_FILE), exclusive=False, wait=True)
        except (FileNotFoundError, NotADirectoryError):
            known = ", ".join(map(str, self.steps())) or "none"
            text = f"there is no complete step {step}; the steps are: {known}"
            raise errors.make("not_found", text, path=self.path, format="checkpoint") from None
        except OSError as error:
            raise _failed(error, path) from None
        assert lock is not None
        try:
            yield path
        finally:
            lock.release()


def _name(step: int) -> str:
    return f"step-{step:08d}"


def _sync(directory: str) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _failed(error: OSError, path: str) -> errors.StoreError:
    message = error.strerror or str(error)
    return errors.from_core("io", "checkpoint", f"{path}: {message}", message, path, None, None, error.errno or 0, None)

"""Locks on files, between processes. The system gives them back when a process ends, however it ends."""

from __future__ import annotations

import fcntl
import os
import weakref

_held: weakref.WeakSet[FileLock] = weakref.WeakSet()


class FileLock:
    """A lock that is held until `release()`. A forked child does not inherit it: otherwise a worker that outlives a killed job
    would keep the next one out."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor
        _held.add(self)

    def __del__(self) -> None:
        self.release()

    def release(self) -> None:
        """Does nothing the second time."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)

    def forget(self) -> None:
        """In a forked child: the lock stays with the parent."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def take(path: str, *, exclusive: bool, wait: bool = False) -> FileLock | None:
    """A lock on a file that exists; None if somebody else has it. Raises OSError.

    exclusive: nobody else has the lock at the same time. Otherwise others can share it.
    """
    # NFS wants a file that is open for writing for an exclusive lock.
    descriptor = os.open(path, (os.O_RDWR if exclusive else os.O_RDONLY) | os.O_CLOEXEC)
    lock = FileLock(descriptor)
    kind = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
    try:
        fcntl.flock(descriptor, kind if wait else kind | fcntl.LOCK_NB)
        # Whoever removed or replaced the file meanwhile had the lock before us.
        if os.fstat(descriptor).st_nlink == 0 or not os.path.samestat(os.fstat(descriptor), os.stat(path)):
            raise FileNotFoundError(path)
    except BlockingIOError:
        lock.release()
        return None
    except BaseException:
        lock.release()
        raise
    return lock


def _forget_in_child() -> None:
    for lock in list(_held):
        lock.forget()


os.register_at_fork(after_in_child=_forget_in_child)

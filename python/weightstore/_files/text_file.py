"""Small text files, written whole or not at all."""

from __future__ import annotations

import os
import stat
import tempfile


def replace_text(path: str, text: str, *, durable: bool = True) -> None:
    """Writes a file that takes the place of the one at `path`, if there is one, when it is complete. If `path` is a link, the file
    that it leads to is replaced."""
    target = os.path.realpath(path)
    directory = os.path.dirname(target)
    try:
        mode = stat.S_IMODE(os.stat(target).st_mode)
    except FileNotFoundError:
        umask = os.umask(0)
        os.umask(umask)
        mode = 0o666 & ~umask
    descriptor, temporary = tempfile.mkstemp(prefix=".weightstore-", dir=directory)
    try:
        with open(descriptor, "w", encoding="utf-8", newline="\n") as file:
            os.fchmod(file.fileno(), mode)
            file.write(text)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise
    if durable:
        folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

"""Writes pages. A page is complete, or the file is as it was."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from secrets import token_hex

from .. import errors
from .document import MARK


def check_replaceable(path: str, *, overwrite: bool) -> None:
    """Raises ConflictError if a file is there that is not a page of weightstore, unless `overwrite`. A directory or a device is
    never replaced."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise errors.make("invalid_argument", "is not a file; give another name for the page", path=path)
        with open(path, "rb") as file:
            beginning = file.read(1024)
    except FileNotFoundError:
        return
    except OSError as error:
        raise _failed(error, path) from None
    if not overwrite and MARK.encode() not in beginning:
        raise _conflict(path)


def write_page(path: str, page: str, *, overwrite: bool) -> None:
    """Writes a page. Replaces what check_replaceable() allows to replace."""
    check_replaceable(path, overwrite=overwrite)
    temporary = os.path.join(os.path.dirname(path), f".{os.path.basename(path)[:100]}.{token_hex(8)}.tmp")
    try:
        with open(temporary, "x", encoding="utf-8") as file:
            file.write(page)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise _failed(error, path) from None
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def _conflict(path: str) -> errors.StoreError:
    message = "this file is not a page of weightstore; give another name, or overwrite=True (--overwrite) to replace it"
    return errors.from_core("conflict", "", f"{path}: {message}", message, path, None, None, errno.EEXIST, None)


def _failed(error: OSError, path: str) -> errors.StoreError:
    message = f"cannot write the page: {error.strerror}"
    return errors.from_core("io", "", f"{path}: {message}", message, path, None, None, error.errno or 0, None)

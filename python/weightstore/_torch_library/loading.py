"""Loads the library: the classes in ``torch.classes.store``.

torch checks nothing when it loads a library, and what goes wrong there ends the interpreter: a library built for another
torch misses symbols, and a second registration of the namespace ``store`` throws where Python cannot catch it. So
everything is checked before.
"""

from __future__ import annotations

import logging
import threading
import types
from pathlib import Path
from typing import Any

from .choice import NoLibrary, library_for
from .running_torch import running_torch

_log = logging.getLogger(__name__)
_lock = threading.RLock()


def library_path() -> Path:
    """The shared library for the installed torch, for C++ programs that link or load it. ImportError if there is none."""
    return library_for(running_torch())


def load() -> None:
    """Registers ``torch.classes.store``; does nothing when that is done already. ImportError says what to do. Where there is no
    library, the next use of ``torch.classes.store`` calls this again, and raises the error."""
    import torch

    with _lock:
        if isinstance(vars(torch.classes).get("store"), LoadedOnUse):
            delattr(torch.classes, "store")
        if _is_registered():
            return
        try:
            path = library_path()
        except NoLibrary:
            setattr(torch.classes, "store", LoadedOnUse("torch.classes.store"))  # noqa: B010 - unknown to type checkers
            raise
        _check_namespace_is_free()
        try:
            torch.classes.load_library(str(path))
        except OSError as error:
            raise ImportError(f"{path} cannot be loaded: {error}") from error


def load_if_there() -> None:
    """load() without its error, for programs that may not need the classes."""
    try:
        load()
    except NoLibrary:
        pass
    except ImportError as error:
        _log.warning("torch.classes.store is not there: %s", error)


class LoadedOnUse(types.ModuleType):
    """What `torch.classes.store` is while there is no library."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        import torch

        load()
        return getattr(torch.classes.store, name)


def _is_registered() -> bool:
    import torch

    try:
        torch.classes.store.CheckpointReader  # noqa: B018
    except RuntimeError:
        return False
    return True


def _check_namespace_is_free() -> None:
    """Raises ImportError if another library has registered the namespace. A process can register a namespace once; a second
    registration from C++ could not be caught, so this function tries it from Python first."""
    import torch

    try:
        torch.library.Library("store", "DEF")._destroy()  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        raise ImportError(
            "another library in this process has registered the torch namespace 'store', which weightstore needs; "
            "the two cannot be used together"
        ) from error

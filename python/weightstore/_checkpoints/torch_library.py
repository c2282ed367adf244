"""Loads the TorchScript library: the classes in ``torch.classes.store``.

torch checks nothing when it loads a library, and what goes wrong there ends the interpreter: a library built for another
torch misses symbols, and a second registration of the namespace ``store`` throws where Python cannot catch it. So
everything is checked before.
"""

import threading
from pathlib import Path

from .._installed import find_installed

_NAMES = ("libweightstore_torch.so", "libweightstore_torch.dylib")
_REINSTALL = "pip install --force-reinstall --no-deps . (in a clone of weightstore)"
_lock = threading.Lock()


def library_path() -> Path:
    """The shared library, for C++ programs that link or load it. ImportError when it was not built."""
    for name in _NAMES:
        path = find_installed(name)
        if path is not None:
            return path
    raise ImportError(
        "weightstore was built without torch, so torch.classes.store is missing; reinstall with torch present in this "
        f"environment: {_REINSTALL}"
    )


def load() -> None:
    """Registers ``torch.classes.store``; does nothing when that is done already. ImportError says what to do."""
    import torch

    with _lock:
        if _is_registered():
            return
        path = library_path()
        built = path.with_name("torch_version.txt").read_text(encoding="utf-8").strip()
        if _minor(built) != _minor(torch.__version__):
            raise ImportError(
                f"{path} was built for torch {built}, but torch {torch.__version__} is running; rebuild it for this "
                f"torch: {_REINSTALL}"
            )
        _check_namespace_is_free()
        torch.classes.load_library(str(path))


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


def _minor(version: str) -> tuple[str, ...]:
    return tuple(version.split("+")[0].split(".")[:2])

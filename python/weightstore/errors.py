"""What can go wrong, and where.

An error has a kind (what happened) and, when it is about a file of a known format, a place. Both are classes, and an error
can be caught by either: a corrupt Burnpack file raises something that is a `FormatError` and a `BurnpackError`.

Every error carries `path`, `tensor` and `offset`: the file, the tensor and the byte it is about, or None.
"""

from __future__ import annotations

import errno as _errno
from typing import Any

from ._core import FORMATS as _FORMATS

__all__ = [
    "StoreError",
    "InvalidArgument",
    "FormatError",
    "LimitError",
    "TensorNotFound",
    "ValidationError",
    "StoreIOError",
    "OutOfMemory",
    "ConflictError",
    "OperationCancelled",
    "SharedTensorsError",
    "NoDataError",
    "BurnpackError",
    "SafetensorsError",
    "SafetensorError",
    "PytorchError",
    "CheckpointError",
    "PagerError",
    "OffloadEof",
    "BudgetExceeded",
]


class StoreError(Exception):
    """Base of all errors of this package."""

    path: str | None = None
    tensor: str | None = None
    offset: int | None = None
    #: The same refusal in the words of the format's reference implementation.
    reference_text: str | None = None
    #: While loading into a module: what was found (an ApplyResult), and the parameters that were set before reading failed.
    result: Any = None
    replaced: list[str] | None = None
    _text: str | None = None

    def __str__(self) -> str:
        return super().__str__() if self._text is None else self._text

    def __reduce__(self) -> Any:
        key = _KEYS.get(type(self))
        if key is None:
            return super().__reduce__()
        return _rebuild, (key, self.args, getattr(self, "filename", None), dict(self.__dict__))


# ---- kinds ---------------------------------------------------------------------------------------------------------


class InvalidArgument(StoreError, ValueError):
    """The caller asked for something that makes no sense."""


class FormatError(StoreError, ValueError):
    """The file breaks the rules of its format, or is of a kind this package does not handle."""


class LimitError(FormatError):
    """Larger than the format, or the reader's limits, allow."""


class TensorNotFound(StoreError, KeyError):
    """No tensor has this name."""

    def __str__(self) -> str:
        # KeyError shows the repr of its argument; ours is a sentence.
        return StoreError.__str__(self) if self._text is not None else str(self.args[0] if self.args else "")


class ValidationError(StoreError, ValueError):
    """Tensors do not fit the module they are for; `result` says which."""


class StoreIOError(StoreError, OSError):
    """The operating system said no; `errno` tells which no."""


class OutOfMemory(StoreError, MemoryError):
    """Reading needs more memory than the machine, or a control group of the process, has available."""


class ConflictError(StoreError):
    """The target exists, or somebody else is writing it."""


class OperationCancelled(StoreError):
    """A progress callback returned False."""


class SharedTensorsError(StoreError, RuntimeError):
    """Tensors share memory, and would be written twice."""


class NoDataError(InvalidArgument, NotImplementedError):
    """A tensor on the meta device has a shape but no values."""


class _Unshowable(InvalidArgument, TypeError, BufferError):
    """Libraries cannot show the tensor. Also a TypeError, as for a type that a library lacks, and a BufferError, which users of
    DLPack expect."""


_Unshowable.__name__ = _Unshowable.__qualname__ = "InvalidArgument[TypeError]"


# ---- places --------------------------------------------------------------------------------------------------------


class BurnpackError(StoreError):
    """Anything about a Burnpack file."""


class SafetensorsError(StoreError):
    """Anything about a SafeTensors file or a set of them."""


SafetensorError = SafetensorsError


class PytorchError(StoreError):
    """Anything about a file of torch.save."""


class CheckpointError(StoreError):
    """Anything about a sharded checkpoint."""


class PagerError(StoreError):
    """Anything about the pager."""


class OffloadEof(PagerError, EOFError):
    """The source ends inside a tensor: of the `needed` bytes at `offset` only `available` are there."""

    needed: int
    available: int


class BudgetExceeded(PagerError, MemoryError):
    """A strict budget has no room: `needed` bytes of `budget`; `holders` are the tensors that could not be let go."""

    needed: int
    budget: int
    holders: list[str]


# ---- what is raised ------------------------------------------------------------------------------------------------


def _named_after(name: str, bases: tuple[type[Exception], ...], doc: str | None) -> type[StoreError]:
    """A class for an error that is several things at once. Its name says so with names that users can catch."""
    return type(name, bases, {"__module__": __name__, "__doc__": doc})


def _os_kind(base: type[OSError], kind: type[StoreError] = StoreIOError) -> type[StoreError]:
    return _named_after(f"{kind.__name__}[{base.__name__}]", (kind, base), base.__doc__)


_FILE_EXISTS = _os_kind(FileExistsError, ConflictError)

_OS_KINDS: dict[int, type[StoreError]] = {
    _errno.ENOENT: _os_kind(FileNotFoundError),
    _errno.EACCES: _os_kind(PermissionError),
    _errno.EPERM: _os_kind(PermissionError),
    _errno.EISDIR: _os_kind(IsADirectoryError),
    _errno.ENOTDIR: _os_kind(NotADirectoryError),
    _errno.EEXIST: _os_kind(FileExistsError),
    _errno.ETIMEDOUT: _os_kind(TimeoutError),
}

# The core's error codes and formats, by their names.
_KINDS: dict[str, type[StoreError]] = {
    "invalid_argument": InvalidArgument,
    "not_found": TensorNotFound,
    "corrupt": FormatError,
    "unsupported": FormatError,
    "limit": LimitError,
    "io": StoreIOError,
    "memory": OutOfMemory,
    "conflict": ConflictError,
    "cancelled": OperationCancelled,
    "shared": SharedTensorsError,
    "no_data": NoDataError,
    "unshowable": _Unshowable,
    "offload_eof": OffloadEof,
    "budget_exceeded": BudgetExceeded,
    "validation": ValidationError,
}

# A format has a class of its own if there is one with its name. Errors about a file of another format have their kind alone.
_PLACES: dict[str, type[StoreError]] = {
    **{f.name: globals()[name] for f in _FORMATS if (name := f"{f.name.capitalize()}Error") in globals()},
    "pager": PagerError,
    "checkpoint": CheckpointError,
}

_Key = tuple[str, str, int]
_CLASSES: dict[tuple[type[StoreError], type[StoreError] | None], type[StoreError]] = {}
_KEYS: dict[type[StoreError], _Key] = {}
for _code, _kind in _KINDS.items():
    _KEYS.setdefault(_kind, (_code, "", 0))
for _errno_of_kind, _kind in _OS_KINDS.items():
    _KEYS.setdefault(_kind, ("io", "", _errno_of_kind))


def _combine(kind: type[StoreError], place: type[StoreError] | None) -> type[StoreError]:
    if place is None or issubclass(kind, place):
        return kind
    # StoreIOError[FileNotFoundError] becomes SafetensorsError[FileNotFoundError].
    shown = kind.__name__.partition("[")[2].removesuffix("]") or kind.__name__
    return _named_after(f"{place.__name__}[{shown}]", (kind, place), kind.__doc__)


def _class_of(code: str, format: str, errno: int) -> type[StoreError]:
    """The class for an error, made when it is first asked for: there are hundreds, and few are ever raised."""
    format = format.removesuffix(" index")
    if format not in _PLACES:
        format = ""
    kind = _KINDS[code]
    if code == "io" and errno in _OS_KINDS:
        kind = _OS_KINDS[errno]
    elif code == "conflict" and errno == _errno.EEXIST:
        kind = _FILE_EXISTS
    else:
        errno = 0
    place = _PLACES.get(format)
    cls = _CLASSES.get((kind, place))
    if cls is None:
        # Of two threads that come here at once, both get the class of the first.
        cls = _CLASSES.setdefault((kind, place), _combine(kind, place))
    _KEYS.setdefault(cls, (code, format, errno))
    return cls


def _construct(cls: type[StoreError], text: str, message: str, path: str | None, errno: int) -> StoreError:
    error = cls(errno, message, path) if issubclass(cls, OSError) else cls(text)
    error._text = text
    return error


def from_core(
    code: str,
    format: str,
    text: str,
    message: str,
    path: str | None,
    tensor: str | None,
    offset: int | None,
    errno: int,
    reference_text: str | None,
) -> StoreError:
    """The exception for an error of the C++ core. `text` is the whole sentence, `message` lacks the place."""
    error = _construct(_class_of(code, format, errno), text, message, path, errno)
    error.path = path
    error.tensor = tensor
    error.offset = offset
    error.reference_text = reference_text
    return error


def make(
    code: str, message: str, *, format: str = "", path: str | None = None, tensor: str | None = None
) -> StoreError:
    """An error raised on the Python side, of the same classes and with the same form of text as the core's."""
    text = message if tensor is None else f"tensor '{tensor}': {message}"
    if path is not None:
        text = f"{path}: {text}"
    return from_core(code, format, text, message, path, tensor, None, 0, None)


def place_of(format: str) -> type[StoreError]:
    """The class of all errors about files of a format; StoreError for a format without one."""
    return _PLACES.get(format, StoreError)


def typed(value: object) -> str:
    """The type of a value, for messages that must not show the value: "an int", "a torch.Tensor", "None"."""
    if value is None:
        return "None"
    kind = type(value)
    name = kind.__name__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__name__}"
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def placed(error: StoreError, format: str, *, again: bool = False) -> StoreError:
    """The same error, as one about a file of `format`. One that is about a known format already stays as it is, unless
    `again`."""
    key = _KEYS.get(type(error))
    place = _PLACES.get(format)
    if key is None or place is None or (key[1] and not again) or isinstance(error, place):
        return error
    return _rebuild((key[0], format, key[2]), error.args, getattr(error, "filename", None), dict(error.__dict__))


def _rebuild(key: _Key, args: tuple[Any, ...], filename: str | None, state: dict[str, Any]) -> StoreError:
    cls = _class_of(*key)
    if issubclass(cls, OSError) and filename is not None and len(args) == 2:
        args = (*args, filename)
    error = cls(*args)
    error.__dict__.update(state)
    return error

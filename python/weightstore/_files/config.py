"""What a file of torch.save(), or a plain pickle, holds beside tensors, as plain data or as a dataclass."""

from __future__ import annotations

import dataclasses
import enum
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar, overload

from .. import _core, errors
from .source import Opaque, kind_of

T = TypeVar("T")


@overload
def read_config(path: Any, key: str | None = None, *, into: None = None, opaque: Opaque = "skip") -> Any: ...
@overload
def read_config(path: Any, key: str | None = None, *, into: type[T], opaque: Opaque = "skip") -> T: ...
def read_config(path: Any, key: str | None = None, *, into: type[Any] | None = None, opaque: Opaque = "skip") -> Any:
    """The parts of a torch.save() file, or of a plain pickle of a dict, that are not tensors: dicts, lists, numbers, text,
    bytes and None.

    Tuples, sets and deques become lists (tuples where they are keys of a dict), torch.Size a list, a device, type or path
    its name, a Namespace a dict, a numpy scalar a number, dates and times ISO text, a timedelta its seconds. Tensors,
    arrays and objects of unknown classes become None. Nothing in the file is run. LimitError: the result would take more
    memory than 24 times the size of the file plus 16 MiB; read a part by its key.

    path: str or os.PathLike, or the contents as a bytes-like object.
    key: a part, by its keys joined by dots; items of a list go by index ("optimizer.param_groups.0.lr").
    into: a dataclass to make of it. Unknown fields are ignored, a missing one takes its default or is an error.
    opaque: as for open().
    """
    if kind_of(path) == "path":
        value = _core.read_config(path, key or "", opaque=opaque)
    else:
        value = _core.read_config_buffer(path, key or "", opaque=opaque)
    return value if into is None else _convert(value, into, key or "the file")


def _mismatch(where: str, wanted: Any, value: Any) -> errors.StoreError:
    shown = wanted.__name__ if isinstance(wanted, type) else str(wanted)
    return errors.make("invalid_argument", f"{where}: expected {shown}, found {value!r}", format="pytorch")


def _convert(value: Any, wanted: Any, where: str) -> Any:
    """`value` as the type that a field's annotation asks for."""
    if wanted is Any or wanted is object:
        return value
    if dataclasses.is_dataclass(wanted) and isinstance(wanted, type):
        return _to_dataclass(value, wanted, where)
    origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
    if origin in (typing.Union, types.UnionType):
        return _first_that_fits(value, wanted, arguments, where)
    if origin is Literal:
        if value not in arguments:
            raise _mismatch(where, wanted, value)
        return value
    if isinstance(wanted, type) and issubclass(wanted, enum.Enum):
        try:
            return wanted(value)
        except ValueError:
            raise _mismatch(where, wanted, value) from None
    container = origin or wanted
    if container is tuple:
        return _to_tuple(value, wanted, arguments, where)
    if container in (list, set, frozenset, Sequence):
        items = _items(value, wanted, where)
        of = arguments[0] if arguments else Any
        made = [_convert(item, of, f"{where}.{i}") for i, item in enumerate(items)]
        return made if container in (list, Sequence) else container(made)
    if container in (dict, Mapping):
        if not isinstance(value, dict):
            raise _mismatch(where, wanted, value)
        key, of = arguments or (Any, Any)
        return {_convert(k, key, f"{where}.{k}"): _convert(v, of, f"{where}.{k}") for k, v in value.items()}
    return _to_scalar(value, wanted, where)


def _items(value: Any, wanted: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise _mismatch(where, wanted, value)
    return value


def _to_tuple(value: Any, wanted: Any, arguments: tuple[Any, ...], where: str) -> tuple[Any, ...]:
    items = _items(value, wanted, where)
    if not arguments:
        return tuple(items)
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        arguments = (arguments[0],) * len(items)
    if len(arguments) != len(items):
        raise _mismatch(where, wanted, value)
    return tuple(_convert(item, of, f"{where}.{i}") for i, (item, of) in enumerate(zip(items, arguments, strict=True)))


def _first_that_fits(value: Any, wanted: Any, choices: tuple[Any, ...], where: str) -> Any:
    for choice in choices:
        try:
            return _convert(value, choice, where)
        except errors.StoreError:
            continue
    raise _mismatch(where, wanted, value)


def _to_scalar(value: Any, wanted: Any, where: str) -> Any:
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if wanted is type(None) or wanted is None:
        wanted = type(None)
    if wanted is bytearray and isinstance(value, bytes):
        return bytearray(value)
    # A bool is an int to Python; as a number in a config it is a mistake.
    if not isinstance(wanted, type) or not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
        raise _mismatch(where, wanted, value)
    return value


def _to_dataclass(value: Any, wanted: type[Any], where: str) -> Any:
    if not isinstance(value, dict):
        raise _mismatch(where, wanted, value)
    hints = typing.get_type_hints(wanted)
    given = {}
    for field in dataclasses.fields(wanted):
        if not field.init:
            continue
        if field.name in value:
            given[field.name] = _convert(value[field.name], hints[field.name], f"{where}.{field.name}")
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise errors.make(
                "invalid_argument", f"{where}: has no '{field.name}', which {wanted.__name__} needs", format="pytorch"
            )
    return wanted(**given)

"""The arguments of Saver, Loader and CheckpointReader, checked before torch sees them.

If an argument has a wrong type, torch raises an error with its schema and the values of all arguments, which hides the wrong one.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from .. import errors
from .._files.paths import check_local
from .._files.sizes import Size, parse_size
from .._files.source import Verify, check_verify

if TYPE_CHECKING:
    import torch

_TABLE = "__torch__.torch.classes.store.HashTable"
_BLOCK = "__torch__.torch.classes.store.WriteBlock"


def path_text(path: str | bytes | os.PathLike[Any]) -> str:
    """The path as text in UTF-8, which is all that TorchScript takes. CheckpointReader has the same rule."""
    if not isinstance(path, (str, bytes, os.PathLike)):
        raise wrong("the path of a checkpoint", path, "a str or an os.PathLike")
    text = os.fsdecode(path)
    try:
        check_local(text, "checkpoint")
    except errors.StoreError as error:
        raise errors.placed(error, "checkpoint") from None
    if "\0" in text:
        raise errors.make("invalid_argument", f"the path {text!r} has a NUL in it", format="checkpoint")
    if not _is_utf8(text):
        raise errors.make(
            "invalid_argument",
            f"the path {os.fsencode(text)!r} is not UTF-8; rename the directory, or use a symbolic link to it",
            format="checkpoint",
        )
    return text


def block_bytes(size: Size) -> int:
    try:
        return parse_size(size, "max_block_bytes")
    except errors.StoreError as error:
        raise errors.placed(error, "checkpoint") from None


def verify_word(verify: Verify) -> str:
    try:
        return check_verify(verify)
    except errors.StoreError as error:
        raise errors.placed(error, "checkpoint") from None


def whole_number(argument: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise wrong(argument, value, "an int") from None


def seconds(argument: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise wrong(argument, value, "a number of seconds") from None
    if not number >= 0:
        raise errors.make("invalid_argument", f"{argument} is {value}; it is a number of seconds", format="checkpoint")
    return number


def check_callable(argument: str, value: Any) -> None:
    if not callable(value):
        raise wrong(argument, value, "something that can be called")


def tables_by_name(hashtables: Mapping[str, Any] | None) -> dict[str, Any]:
    """The tables as torch.classes.store has them. The C++ side checks that the keys are the names of the tables."""
    if hashtables is None:
        return {}
    if not isinstance(hashtables, Mapping):
        raise wrong("hashtables", hashtables, "a dict of name to weightstore.HashTable")
    tables = {}
    for name, table in hashtables.items():
        _check_name("hashtables", name)
        tables[name] = getattr(table, "script_object", table)
        if not is_table(tables[name]):
            raise wrong(f"hashtables[{name!r}]", table, "a weightstore.HashTable or a torch.classes.store.HashTable")
    return tables


def tensors_by_name(
    tensors: Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]] | None,
) -> dict[str, torch.Tensor]:
    """Tensors from a mapping or from pairs; no name twice."""
    import torch

    result: dict[str, torch.Tensor] = {}
    for name, tensor in _pairs(tensors):
        _check_name("tensors", name)
        if name in result:
            raise errors.make("invalid_argument", "is given twice", tensor=name, format="checkpoint")
        if not isinstance(tensor, torch.Tensor):
            raise wrong(f"tensors[{name!r}]", tensor, "a torch.Tensor; torch.tensor() makes one of a number")
        result[name] = tensor
    return result


def _pairs(tensors: Any) -> Iterable[tuple[Any, Any]]:
    if tensors is None:
        return
    if isinstance(tensors, Mapping):
        yield from tensors.items()
        return
    expected = "a dict of name to tensor, or (name, tensor) pairs"
    if isinstance(tensors, str) or not isinstance(tensors, Iterable):
        raise wrong("tensors", tensors, expected)
    import torch

    for number, pair in enumerate(tensors):
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            advice = "; a list of tensors alone has no names" if isinstance(pair, torch.Tensor) else ""
            raise wrong(f"item {number} of tensors", pair, expected + advice)
        yield pair[0], pair[1]


def chosen_blocks(returned: Any) -> list[Any]:
    """The result of a filter_func as a list, checked."""
    if not isinstance(returned, Iterable):
        raise wrong("what filter_func returned", returned, "the list of the blocks to save")
    blocks = list(returned)
    for number, block in enumerate(blocks):
        if not _is_a(_BLOCK, block):
            raise wrong(f"item {number} of what filter_func returned", block, "one of the blocks it was given")
    return blocks


def _check_name(where: str, name: Any) -> None:
    if not isinstance(name, str):
        raise wrong(f"a name in {where}", name, "a str")
    if not _is_utf8(name):
        raise errors.make("invalid_argument", f"the name {name!r} in {where} is not UTF-8", format="checkpoint")


def _is_utf8(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def is_table(value: Any) -> bool:
    """Whether this is a torch.classes.store.HashTable."""
    return _is_a(_TABLE, value)


def _is_a(name: str, value: Any) -> bool:
    import torch

    return isinstance(value, torch.ScriptObject) and value._type().qualified_name() == name


def wrong(what: str, value: Any, expected: str) -> TypeError:
    """A TypeError that tells the type of a value, and what was expected."""
    kind = type(value)
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
    return TypeError(f"{what} is of type {name}; expected {expected}")

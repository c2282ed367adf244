"""``weightstore show``: the numbers of tensors."""

from __future__ import annotations

import argparse
import re
import sys
from typing import TYPE_CHECKING, Any

from ..errors import make
from . import options
from .output import Style, print_json, safe, table
from .progress import bar

if TYPE_CHECKING:
    from .._files.file import File
    from .._look.statistics import Statistics

_EDGE = 3  # elements shown at each end of a dimension
_WHOLE = 8  # a dimension of at most so many elements is shown whole
_BINS = 24
_TICKS = " ▁▂▃▄▅▆▇█"
_PLAIN_TICKS = " .:-=+*#@"


def add_to(verbs: options.Verbs) -> None:
    parser = options.add_verb(
        verbs,
        "show",
        _show,
        "print values and statistics of one tensor, or the statistics of all tensors",
        (
            "weightstore show model.safetensors model.embed_tokens.weight",
            "weightstore show model.safetensors 'model.norm.weight[:16]'",
            "weightstore show model.safetensors --no-histogram",
        ),
    )
    parser.add_argument("path", help=options.PATH_HELP)
    parser.add_argument("name", nargs="?", help="a tensor, or a part of one: 'layer.weight[0, :5]'")
    options.add_switch(parser, "histogram", True, "histograms; the default, for which every value is looked at twice")
    options.add_choice(parser)
    options.add_opaque(parser)
    options.add_progress(parser)
    options.add_json(parser)


def _show(arguments: argparse.Namespace) -> int:
    with options.open_file(arguments.path, arguments.opaque) as file:
        if arguments.name is None:
            return _show_all(file, arguments)
        return _show_one(file, arguments)


# ---- all tensors -----------------------------------------------------------------------------------------------------


def _show_all(file: File, arguments: argparse.Namespace) -> int:
    from .._look.statistics import statistics

    names = options.chosen(file.keys(), arguments.include, arguments.exclude)
    bins = _BINS if arguments.histogram else 0
    with bar(arguments.progress, "reading") as report:
        found = statistics(file, names, bins=bins, progress=report)
    if arguments.json:
        print_json({name: None if one is None else one.as_dict() for name, one in found.items()})
        return 0
    head = ("name", "min", "max", "mean", "std", "NaN", "Inf", "zeros", *(["histogram"] if bins else []))
    rows = [head, *(_row(name, one, bins) for name, one in found.items())]
    style = Style(sys.stdout)
    first, _, rest = table(rows, right=range(1, 8)).partition("\n")
    print(style(first, "bold"))
    sys.stdout.write(rest)
    return 0


def _row(name: str, one: Statistics | None, bins: int) -> tuple[str, ...]:
    if one is None:
        return (safe(name), *["-"] * 7, *(["no numbers"] if bins else []))
    numbers = (_text(one.min), _text(one.max), _text(one.mean), _text(one.std))
    counts = (str(one.nans), str(one.infinities), str(one.zeros))
    return (safe(name), *numbers, *counts, *([_sparkline(one.histogram)] if bins else []))


def _sparkline(histogram: tuple[int, ...]) -> str:
    ticks = _TICKS if (sys.stdout.encoding or "").lower().startswith("utf") else _PLAIN_TICKS
    most = max(histogram, default=0)
    # A bin with anything in it shows.
    return "".join(ticks[-(-count * (len(ticks) - 1) // most) if most else 0] for count in histogram)


# ---- one tensor ------------------------------------------------------------------------------------------------------


def _show_one(file: File, arguments: argparse.Namespace) -> int:
    from .. import _core

    name, key = _parse(file, arguments.name)
    whole = file[name]
    bins = _BINS if arguments.histogram else 0
    is_quantized = whole.scheme is not None or whole.dtype in _core.DEQUANTIZABLE
    handle: Any = whole.dequantize() if is_quantized else whole
    if key is not None:
        handle = handle[key]
    with bar(arguments.progress, "reading") as report:
        found = _statistics(file, name, handle, key is None, bins, report)
    values = _values(handle)
    if arguments.json:
        row = {"name": name, "dtype": whole.dtype, "shape": list(handle.shape), "nbytes": handle.nbytes}
        print_json({**row, "statistics": None if found is None else found.as_dict(), "values": values})
        return 0
    style = Style(sys.stdout)
    print(f"{style(safe(arguments.name), 'bold')}: {whole.dtype} {list(handle.shape)}, {_size(handle.nbytes)}")
    if values is not None:
        print(_block(values))
    if found is None:
        print(f"{whole.dtype} has no numbers that weightstore knows")
        return 0
    facts = [
        ("min", _text(found.min)),
        ("max", _text(found.max)),
        ("mean", _text(found.mean)),
        ("std", _text(found.std)),
    ]
    facts += [("NaN", str(found.nans)), ("Inf", str(found.infinities)), ("zeros", str(found.zeros))]
    print("  ".join(f"{label} {value}" for label, value in facts))
    if bins and sum(found.histogram):
        print(f"{_text(found.min)} |{_sparkline(found.histogram)}| {_text(found.max)}")
    return 0


def _size(nbytes: int) -> str:
    from .._files.sizes import format_size

    return format_size(nbytes)


def _parse(file: File, text: str) -> tuple[str, tuple[Any, ...] | None]:
    """A name and an index. A tensor whose name ends in brackets is found by its whole name."""
    if text in file:
        return text, None
    name, bracket, rest = text.rpartition("[")
    if not bracket or not rest.endswith("]"):
        _ = file[text]  # raises, and names what is similar
    return name, tuple(_part(part.strip(), text) for part in rest[:-1].split(","))


def _part(text: str, whole: str) -> Any:
    """An integer, a slice or `...`."""
    if text == "...":
        return ...
    if re.fullmatch(r"[+-]?\d+", text):
        return int(text)
    pieces = [piece.strip() for piece in text.split(":")]
    if len(pieces) in (2, 3) and all(re.fullmatch(r"(?:[+-]?\d+)?", piece) for piece in pieces):
        return slice(*[int(piece) if piece else None for piece in pieces])
    raise make("invalid_argument", f"{text!r} in {whole!r} is not an integer, a slice such as 2:10 or 5:, or '...'")


def _statistics(file: File, name: str, handle: Any, is_whole: bool, bins: int, report: Any) -> Statistics | None:
    from .. import _core
    from .._files.file import open as open_file
    from .._look.statistics import statistics

    if is_whole:
        return statistics(file, [name], bins=bins, progress=report)[name]
    # A part becomes a file in memory.
    writer = _core.Writer()
    data = handle.bytes()
    writer.add("part", handle.dtype, list(handle.shape), _core.Producer.buffer(data))
    with open_file(
        writer.write_bytes("safetensors" if handle.dtype not in ("Flex32", "BoolU8", "BoolU32") else "burnpack")
    ) as part:
        return statistics(part, ["part"], bins=bins)["part"]


# ---- values ----------------------------------------------------------------------------------------------------------


def _values(handle: Any) -> Any:
    """The numbers at the edges of a tensor, as nested lists; "..." stands for what is left out. None for a type without
    numbers."""
    from .. import _core

    if handle.dtype in _core.BLOCKS:
        return None
    if not handle.shape:
        numbers = _core.numbers_of(handle.dtype, handle.bytes())
        return None if numbers is None else _scalar(numbers)
    if len(handle.shape) == 1:
        return _vector(handle)
    rows: list[Any] = []
    for at in _edges(handle.shape[0]):
        row = "..." if at is None else _values(handle[at])
        if row is None:
            return None
        rows.append(row)
    return rows


def _scalar(numbers: list[Any]) -> Any:
    return numbers[0] if len(numbers) == 1 else numbers  # a complex number is two


def _vector(handle: Any) -> list[Any] | None:
    from .. import _core

    size = handle.shape[0]
    bounds = [(0, size)] if size <= _WHOLE else [(0, _EDGE), (size - _EDGE, size)]
    if handle.dtype == "F4":  # whose last dimension is only read whole
        bounds = [(0, size)]
    values: list[Any] = []
    for begin, end in bounds:
        numbers = _core.numbers_of(handle.dtype, handle[begin:end].bytes())
        if numbers is None:
            return None
        step = max(len(numbers) // max(end - begin, 1), 1)
        values += [_scalar(numbers[i : i + step]) for i in range(0, len(numbers), step)] + ["..."]
    values.pop()
    return values if len(values) <= 2 * _WHOLE else [*values[:_EDGE], "...", *values[-_EDGE:]]


def _edges(size: int) -> list[int | None]:
    if size <= _WHOLE:
        return list(range(size))
    return [*range(_EDGE), None, *range(size - _EDGE, size)]


def _block(values: Any) -> str:
    """Nested lists as numpy prints them: one line a row, columns aligned."""
    if not isinstance(values, list):
        return _text(values)
    texts = _texts(values)
    most = max((len(text) for text in _leaves(texts)), default=0)
    return _lines(texts, most, " ")


def _texts(values: Any) -> Any:
    if isinstance(values, list):
        return [_texts(value) for value in values]
    return values if isinstance(values, str) else _text(values)


def _leaves(texts: Any) -> list[str]:
    if isinstance(texts, str):
        return [texts]
    return [leaf for text in texts for leaf in _leaves(text)]


def _lines(texts: Any, most: int, indent: str) -> str:
    if all(isinstance(text, str) for text in texts):
        return "[" + " ".join(text.rjust(most) for text in texts) + "]"
    inner = [text if isinstance(text, str) else _lines(text, most, indent + " ") for text in texts]
    return "[" + f"\n{indent}".join(inner) + "]"


def _text(number: float | int) -> str:
    return str(number) if isinstance(number, int) else f"{number:.6g}"

"""`weightstore.html_report`."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import _core, errors
from .._files.file import File, source_of
from .._files.file import open as open_file
from .._files.formats import title_of
from .._files.paths import check_local
from .._files.progress import Progress
from .._files.source import Opaque
from .._page.data import Json, file_data, page_data, real, whole
from .._page.document import document
from .._page.image import matrix_image, steps
from .._page.output import check_replaceable, write_page
from .difference import difference
from .statistics import statistics

if TYPE_CHECKING:
    import numpy as np

_BINS = 64
# Each image is about three kilobytes of the page.
_MOST_IMAGES = 400


def html_report(
    path: Any,
    other: Any = None,
    *,
    output: str | os.PathLike[str],
    values: bool = False,
    overwrite: bool = False,
    open: bool = False,
    opaque: Opaque | None = None,
    progress: Progress | bool | None = None,
) -> None:
    """Writes a page about a file, or about the differences of two files, that any browser shows: a tree of its modules, a treemap of
    its bytes, search, and what is known about every tensor. The page is one HTML file that needs no network.

    path, other: what `weightstore.open` takes, or an open File.
    output: where the page goes. An older page of weightstore is replaced.
    values: also read the data: statistics, histograms and small images of matrices; for two files, how far values differ.
    overwrite: True also replaces a file that is not a page of weightstore. False raises ConflictError for one.
    open: show the page in a browser.
    opaque: as for `weightstore.open`; "skip" if it is not given. An open File has its own.
    """
    target = os.fspath(output)
    check_local(target, "save")
    check_replaceable(target, overwrite=overwrite)  # before the data is read
    with ExitStack() as stack:
        files = [_opened(source, opaque, stack) for source in ([path] if other is None else [path, other])]
        data = report_data(files, values=values, progress=progress)
    title = " → ".join(os.path.basename(os.path.normpath(file["path"])) for file in data["files"])
    write_page(target, document(data, title), overwrite=overwrite)
    if open:
        import webbrowser

        webbrowser.open(Path(target).absolute().as_uri())


def _opened(source: Any, opaque: Opaque | None, stack: ExitStack) -> File:
    if not isinstance(source, File):
        return stack.enter_context(open_file(source, opaque=opaque or "skip"))
    if opaque is not None:
        raise errors.make("invalid_argument", "opaque is for paths; a File has its own", path=source.path)
    return source


def report_data(files: list[File], *, values: bool = False, progress: Progress | bool | None = None) -> Json:
    """The data of the page, in the format of docs/page.md. The arguments are as for html_report."""
    described = [file_data(source_of(file).reader, file.path or "in memory", title_of(file.format)) for file in files]
    if not values:
        return page_data(described)
    for file, data in zip(files, described, strict=True):
        data["statistics"] = _statistics(file, data["tensors"]["name"], progress)
        data["images"] = _images(file, data["tensors"])
    return page_data(described, _differences(files, described[0], progress) if len(files) == 2 else None)


# ---- values ----------------------------------------------------------------------------------------------------------


def _statistics(file: File, names: list[str], progress: Progress | bool | None) -> Json:
    found = statistics(file, names, bins=_BINS, progress=progress)
    return {
        str(i): {
            "count": whole(one.count),
            "nans": whole(one.nans),
            "infinities": whole(one.infinities),
            "zeros": whole(one.zeros),
            "min": _number(one.min),
            "max": _number(one.max),
            "mean": real(one.mean),
            "std": real(one.std),
            "histogram": list(one.histogram),
        }
        for i, name in enumerate(names)
        if (one := found[name]) is not None
    }


def _number(value: float | int) -> float | int | str:
    return whole(value) if isinstance(value, int) else real(value)


def _images(file: File, tensors: Json) -> Json:
    matrices = [i for i, shape in enumerate(tensors["shape"]) if len(shape) == 2 and min(map(int, shape)) > 1]
    matrices.sort(key=lambda i: int(tensors["bytes"][i]), reverse=True)
    images: Json = {}
    for i in matrices[:_MOST_IMAGES]:
        row_step, column_step = steps(*file[tensors["name"][i]].shape)
        sample = _sample(file, tensors["name"][i], row_step, column_step)
        if sample is not None and (image := matrix_image(sample, row_step, column_step)) is not None:
            images[str(i)] = image
    return images


def _sample(file: File, name: str, row_step: int, column_step: int) -> np.ndarray[Any, Any] | None:
    """Some rows and columns of a matrix; None if numpy cannot show its type as numbers."""
    import numpy as np

    handle = file[name]
    try:
        if handle.scheme is not None or handle.dtype in _core.DEQUANTIZABLE:
            return handle.dequantize()[::row_step, ::column_step].numpy()
        part = handle[::row_step, ::column_step]
        if handle.dtype == "BF16":  # numpy alone has no such type
            numbers: Any = _core.Producer.buffer(part.bytes()).cast("BF16", "F32").read()
            return np.frombuffer(numbers, np.float32).reshape(part.shape)
        array = part.numpy()
    except (TypeError, errors.InvalidArgument):
        return None
    return None if np.iscomplexobj(array) else array


def _differences(files: list[File], first: Json, progress: Progress | bool | None) -> Json:
    places = {name: i for i, name in enumerate(first["tensors"]["name"])}
    return {
        str(places[one.name]): {
            "count": whole(one.values.count),
            "differing": whole(one.values.differing),
            "unmeasured": whole(one.values.unmeasured),
            "max_absolute": real(one.values.max_absolute),
            "max_relative": real(one.values.max_relative),
        }
        for one in difference(*files, values=True, progress=progress).changed
        if one.values is not None
    }

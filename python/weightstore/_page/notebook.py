"""What a notebook shows of an open file: the viewer in a frame, and a table for places that run no scripts."""

from __future__ import annotations

import os

from .. import _core
from .data import file_data, page_data, sorted_numbers
from .document import document, escaped

# A frame carries the viewer and all names. A larger file is shown by its table; its notebook stays small.
MOST_TENSORS = 5_000
_MOST_ROWS = 200


def notebook_html(reader: _core.Reader, summary: str, path: str, format: str) -> str:
    """summary: one line about the file. path and format: as for `file_data`."""
    if len(reader) > MOST_TENSORS:
        hint = f"more than {MOST_TENSORS} tensors; weightstore.html_report writes a page of all"
        return f"<p>{escaped(summary)} ({escaped(hint)})</p>{_table(reader)}"
    page = document(page_data([file_data(reader, path, format)]), path)
    # The frame can run the viewer's script, and reach nothing of the notebook.
    frame = (
        f'<iframe sandbox="allow-scripts" title="{escaped(summary)}" srcdoc="{escaped(page)}"'
        ' style="width: 100%; height: 560px; border: 0"></iframe>'
    )
    return f"<p>{escaped(summary)}</p>{frame}<details><summary>As a table</summary>{_table(reader)}</details>"


def _table(reader: _core.Reader) -> str:
    numbers = sorted_numbers(reader)
    rows = []
    for number in numbers[:_MOST_ROWS]:
        name, dtype, shape, nbytes = reader.describe(number)
        cells = (name, dtype, str(list(shape)), f"{nbytes:,} B", os.path.basename(reader.source_of(number)))
        rows.append("<tr>" + "".join(f"<td>{escaped(cell)}</td>" for cell in cells) + "</tr>")
    more = len(numbers) - len(rows)
    note = f"<p>and {more} more</p>" if more else ""
    head = "".join(f"<th>{title}</th>" for title in ("name", "dtype", "shape", "size", "file"))
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>{note}"

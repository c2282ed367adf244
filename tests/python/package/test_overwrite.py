"""Every row of the table in docs/conventions.md: who replaces what is there, and who refuses."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import weightstore
import weightstore.numpy as wn
from weightstore import BurnpackStore, SafetensorsStore, _core, compat, errors
from weightstore._cli.main import main

PAGE = Path(__file__).parents[3] / "docs/conventions.md"
OLD, NEW = {"old": np.zeros(3, np.float32)}, {"new": np.ones(3, np.float32)}
INDEX = "model.safetensors.index.json"


class Row(NamedTuple):
    """A row of the table, and what each cell means."""

    who: str
    there: str
    default: str
    otherwise: str
    put: Callable[[Path], Path]  # makes what is there, and returns what opens it
    save: Callable[..., None]
    other: dict[str, Any] | None  # what save() takes for the other way; None when there is none


def file(name: str) -> Callable[[Path], Path]:
    def put(folder: Path) -> Path:
        wn.save_file(OLD, folder / name)
        return folder / name

    return put


def shard_set(folder: Path) -> Path:
    wn.save_file(OLD, folder / INDEX)
    return folder / INDEX


def checkpoint(layout: str) -> Callable[[Path], Path]:
    def put(folder: Path) -> Path:
        saver(layout)(folder / "index", tensors=OLD)
        return folder / (INDEX if layout == "plain" else "index")

    return put


def saver(layout: str) -> Callable[..., None]:
    def save(path: Path, tensors: Any = NEW, **options: Any) -> None:
        torch = pytest.importorskip("torch")
        given = {name: torch.from_numpy(array) for name, array in tensors.items()}
        weightstore.Saver(path=path.parent, tensors=given, layout=layout, **options).save()

    return save


def write(path: Path, **options: Any) -> None:
    writer = _core.Writer()
    array = NEW["new"]
    writer.add_memory("new", "F32", array.shape, array.ctypes.data, array.nbytes, array)
    if path.name == INDEX:
        writer.write_shards(path, 1000, **options)
    else:
        writer.write_file(path, "safetensors", **options)


def save_file(path: Path, **options: Any) -> None:
    wn.save_file(NEW, path, **options)


def save_model(path: Path, **options: Any) -> None:
    torch = pytest.importorskip("torch")
    import weightstore.torch

    module = torch.nn.Module()
    module.register_buffer("new", torch.ones(3))
    weightstore.torch.save_model(module, path, **options)


def serialize(path: Path) -> None:
    array = NEW["new"]
    spec = compat.TensorSpec(dtype="float32", shape=array.shape, data_ptr=array.ctypes.data, data_len=array.nbytes)
    compat.serialize_file({"new": spec}, path)


def store(kind: Any) -> Callable[..., None]:
    return lambda path, overwrite=False: kind.from_file(path).overwrite(overwrite).collect_from(NEW)


def convert(path: Path, **options: Any) -> None:
    wn.save_file(NEW, path.with_name("source.safetensors"))
    weightstore.convert(path.with_name("source.safetensors"), path, **options)


def command(path: Path, overwrite: bool = False) -> None:
    wn.save_file(NEW, path.with_name("source.safetensors"))
    options = ["--overwrite"] if overwrite else []
    if main(["convert", str(path.with_name("source.safetensors")), str(path), *options]) != 0:
        raise errors.ConflictError("the command failed")


VERBS = ("`save_file`, `save_model`", "a file, or a set of shards, of that name", "replaces it", "`overwrite=False`")
WRITER = (
    "C++ `Writer`",
    "a file, or a set of shards, of that name",
    "replaces it",
    "`WriteOptions::overwrite = false`",
)
STORES = (
    "`SafetensorsStore`, `BurnpackStore`, `save_into`",
    "a file of that name",
    "refuses",
    "a store with `overwrite(True)`",
)
CONVERT = (
    "`convert`, `weightstore convert`",
    "a file, or a set of shards, of that name",
    "refuses",
    "`overwrite=True`, `--overwrite`",
)
PLAIN, RECIS = "`Saver`, layout `plain`", "`Saver`, layout `recis`"
KEEP, REPLACE = {"overwrite": False}, {"overwrite": True}
# No file of tensors: tests/python/page shows these.
PAGES = [
    ("`html_report`, `weightstore html`", "an older page of weightstore", "replaces it", ""),
    ("`html_report`, `weightstore html`", "any other file of that name", "refuses", "`overwrite=True`, `--overwrite`"),
]
ROWS = [
    Row(*VERBS, file("m.safetensors"), save_file, KEEP),
    Row(*VERBS, file("m.bpk"), save_file, KEEP),
    Row(*VERBS, shard_set, save_file, KEEP),
    Row(*VERBS, file("m.safetensors"), save_model, KEEP),
    Row("`compat.serialize_file`", "a file of that name", "replaces it", "", file("m.safetensors"), serialize, None),
    Row(*WRITER, file("m.safetensors"), write, KEEP),
    Row(*WRITER, shard_set, write, KEEP),
    Row(*STORES, file("m.safetensors"), store(SafetensorsStore), REPLACE),
    Row(*STORES, file("m.bpk"), store(BurnpackStore), REPLACE),
    Row(*STORES, file("m.bpk"), lambda path: weightstore.save_into(NEW, path), None),
    Row(*CONVERT, file("m.safetensors"), convert, REPLACE),
    Row(*CONVERT, file("m.bpk"), convert, REPLACE),
    Row(*CONVERT, shard_set, convert, REPLACE),
    Row(*CONVERT, file("m.bpk"), command, REPLACE),
    Row(PLAIN, "its own checkpoint, layout `plain`", "replaces it", "", checkpoint("plain"), saver("plain"), None),
    Row(
        PLAIN, "a set of shards that another program wrote", "refuses", "`overwrite=True`",
        shard_set, saver("plain"), REPLACE,
    ),
    Row(PLAIN, "a checkpoint, layout `recis`", "refuses", "remove it first", checkpoint("recis"), saver("plain"), None),
    Row(
        RECIS, "a checkpoint of any layout", "refuses", "`overwrite=True`",
        checkpoint("recis"), saver("recis"), REPLACE,
    ),
    Row(
        RECIS, "a checkpoint of any layout", "refuses", "`overwrite=True`",
        checkpoint("plain"), saver("recis"), REPLACE,
    ),
]  # fmt: skip


def test_the_table_has_these_rows():
    table = PAGE.read_text(encoding="utf-8").partition("| who saves |")[2].partition("\n\n")[0]
    rows = [tuple(cell.strip() for cell in line.strip("|\n").split("|")) for line in table.splitlines()[2:]]
    assert [*dict.fromkeys(row[:4] for row in ROWS)] == [row for row in rows if row not in PAGES]
    assert set(PAGES) <= set(rows)


def names(path: Path) -> list[str]:
    if path.name == "index":
        return weightstore.CheckpointReader(path.parent).tensor_names()
    return list(weightstore.open(path))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: re.sub(r"\W+", "-", f"{row.who} {row.there}"))
def test_row(row, tmp_path):
    path = row.put(tmp_path)
    assert names(path) == ["old"]

    def attempt(options: dict[str, Any], replaces: bool) -> None:
        if replaces:
            row.save(path, **options)
        else:
            with pytest.raises(errors.ConflictError):
                row.save(path, **options)

    replaces = row.default == "replaces it"
    if row.other is not None and replaces:
        attempt(row.other, False)
        assert names(path) == ["old"]
    attempt({}, replaces)
    if row.other is not None and not replaces:
        assert names(path) == ["old"]
        attempt(row.other, True)
        replaces = True
    there = path if path.exists() else tmp_path / "index"
    assert names(there) == (["new"] if replaces else ["old"])

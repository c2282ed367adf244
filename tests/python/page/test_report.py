"""html_report: what it writes, for every format; what it refuses; and that nothing is lost."""

from __future__ import annotations

import errno
import json
import os
import re
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weightstore
import weightstore.numpy
from support.page_files import HOSTILE, many_tensors, small_model
from weightstore import errors
from weightstore._page import data as page_data
from weightstore._page import notebook
from weightstore._page.document import document, script_json
from weightstore._page.image import SIDE, matrix_image, steps

VIEWER = Path(weightstore.__file__).parent / "_page" / "viewer"
SCHEMA = jsonschema.Draft202012Validator(json.loads((VIEWER / "data.schema.json").read_text(encoding="utf-8")))


def data_of(page: Path) -> dict:
    """The data in a page, which must be of its schema."""
    text = page.read_text(encoding="utf-8")
    (found,) = re.findall(r'<script type="application/json" id="weightstore-data">(.*?)</script>', text, re.DOTALL)
    data = json.loads(found)
    SCHEMA.validate(data)
    for file in data["files"]:
        assert len({len(column) for column in file["tensors"].values()}) == 1
        assert all(0 <= place < len(file["dtypes"]) for place in file["tensors"]["dtype"])
    return data


def report(*paths: Path, values: bool = False, **options) -> dict:
    page = paths[0].with_name("page.html")
    weightstore.html_report(*paths, output=page, values=values, **options)
    return data_of(page)


# ---- data ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("values", [False, True])
@pytest.mark.parametrize("ending", [".safetensors", ".bpk", ".npz", ".pt", ".safetensors.index.json", "/"])
def test_the_page_says_what_the_file_says(tmp_path, ending, values):
    source = small_model(tmp_path / "source.safetensors")
    path = tmp_path / f"model{ending}"
    if ending == "/":  # a directory with a set in it
        path.mkdir()
        weightstore.convert(source, path / "model.safetensors.index.json", max_shard_size="100KB")
    elif ending == ".npz":
        np.savez(path, **weightstore.numpy.load_file(source))
    elif ending == ".pt":
        torch = pytest.importorskip("torch")
        torch.save({k: torch.from_numpy(v.copy()) for k, v in weightstore.numpy.load_file(source).items()}, path)
    else:
        options = {"max_shard_size": "100KB"} if ending.endswith("json") else {}
        weightstore.convert(source, path, **options)
    (file,) = report(path, values=values)["files"]
    with weightstore.open(path) as opened:
        tensors = file["tensors"]
        assert tensors["name"] == list(opened)
        assert [file["dtypes"][i] for i in tensors["dtype"]] == [handle.dtype for handle in opened.values()]
        assert tensors["shape"] == [list(handle.shape) for handle in opened.values()]
        assert tensors["bytes"] == [handle.nbytes for handle in opened.values()]
        shards = {os.path.basename(handle.shard) for handle in opened.values()}
        assert set(file.get("shards", shards)) == shards
        if len(shards) > 1:
            assert [file["shards"][i] for i in tensors["shard"]] == [os.path.basename(h.shard) for h in opened.values()]
        if ending == ".bpk":
            assert len(tensors["name"]) == 30
        assert ("statistics" in file) == values
        if values:
            assert_statistics(file, opened)


def assert_statistics(file: dict, opened: weightstore.File) -> None:
    for i, handle in enumerate(opened.values()):
        array = handle.numpy().astype("f8")
        found = file["statistics"][str(i)]
        assert (found["count"], found["min"], found["max"]) == (array.size, array.min(), array.max())
        assert found["mean"] == pytest.approx(array.mean(), rel=1e-6, abs=1e-9)
        assert found["std"] == pytest.approx(array.std(), rel=1e-6, abs=1e-9)
        assert sum(found["histogram"]) == array.size
        assert (str(i) in file["images"]) == (array.ndim == 2)


def test_metadata_scalars_and_what_is_left_out(tmp_path, write_raw):
    path = tmp_path / "model.bpk"
    write_raw(
        {"a": ("F32", [2], bytes(8)), "b": ("F32", [1], bytes(4))},
        "burnpack",
        metadata={"note": "n"},
        scalars={"epoch": 3, "rate": 0.5, "done": True},
        ids={"a": 2**64 - 1},
        path=path,
    )
    (file,) = report(path)["files"]
    assert file["metadata"]["note"] == "n"
    assert file["scalars"] == {"epoch": "3", "rate": "0.5", "done": "True"}
    assert file["tensors"]["param_id"] == [str(2**64 - 1), None]
    weightstore_pt = tmp_path / "model.npz"
    np.savez(weightstore_pt, good=np.zeros(2), text=np.array(["x"]))
    (file,) = report(weightstore_pt)["files"]
    assert [value["name"] for value in file["left_out"]] == ["text"]


def test_long_metadata_is_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(page_data, "MOST_ENTRIES", 2)
    path = tmp_path / "model.safetensors"
    metadata = {"a": "x" * 100_000, "b": "y", "c": "z"}
    weightstore.numpy.save_file({"t": np.zeros(1)}, path, metadata=metadata)
    (file,) = report(path)["files"]
    assert len(file["metadata"]) == 3
    assert len(file["metadata"]["a"]) < 21_000
    assert file["metadata"]["a"].endswith("(100000 characters in all)")
    assert file["metadata"]["…"] == "and 1 more"


def test_numbers_that_json_or_javascript_lack(tmp_path, write_raw):
    path = tmp_path / "model.safetensors"
    integers = np.uint64([2**64 - 1, 0])
    tensors = {
        "huge": ("F32", [2**60, 0], b""),
        "integers": ("U64", [2], integers.tobytes()),
        "nan": ("F32", [1], np.float32([np.nan]).tobytes()),
    }
    write_raw(tensors, path=path)
    (file,) = report(path, values=True)["files"]
    assert file["tensors"]["shape"][0] == [str(2**60), 0]
    assert file["statistics"]["1"]["max"] == str(2**64 - 1)
    assert file["statistics"]["2"]["mean"] == "NaN"


def test_every_type_makes_a_page(tmp_path, write_raw):
    """Also types that numpy cannot show, or that have no numbers."""
    from weightstore import _core

    names = next(format for format in _core.FORMATS if format.name == "safetensors").dtypes
    tensors = {name: (name, [8, 8], bytes(_core.DTYPES[name] * 8)) for name in names}
    path = tmp_path / "model.safetensors"
    write_raw(tensors, path=path)
    (file,) = report(path, values=True)["files"]
    shown = {file["tensors"]["name"][int(i)] for i in file["images"]}
    assert {"F32", "BF16", "F16", "I64", "U8", "BOOL", "F64"} <= shown
    assert {"F32", "BF16", "F8_E4M3"} <= {file["tensors"]["name"][int(i)] for i in file["statistics"]}


def test_quantized_matrices_have_images(tmp_path):
    from weightstore import BurnpackStore, QuantScheme, quantize

    matrix = np.linspace(-1, 1, 64 * 64, dtype="f4").reshape(64, 64)
    store = BurnpackStore.from_file(tmp_path / "q.bpk").with_to_adapter(quantize(QuantScheme("Q8S")))
    store.collect_from({"layer": {"weight": matrix}})
    (file,) = report(tmp_path / "q.bpk", values=True)["files"]
    assert file["dtypes"] == ["QFloat"]
    assert file["images"]["0"]["scale"] == pytest.approx(1, abs=0.02)


def test_two_files(tmp_path):
    first = small_model(tmp_path / "a.safetensors")
    second = small_model(tmp_path / "b.safetensors", position_ids=np.arange(128)[::-1].copy())
    assert "differences" not in report(first, second)
    data = report(first, second, values=True)
    place = data["files"][0]["tensors"]["name"].index("position_ids")
    expected = {"count": 128, "differing": 128, "unmeasured": 0, "max_absolute": 127, "max_relative": 1}
    assert data["differences"] == {str(place): expected}


def test_open_files_contents_and_progress(tmp_path):
    path = small_model(tmp_path / "model.safetensors")
    seen: list[int] = []
    with weightstore.open(path, backend="pread") as file:
        weightstore.html_report(
            file, output=tmp_path / "page.html", values=True, progress=lambda done, *_: seen.append(done)
        )
        assert not file.closed
    assert len(data_of(tmp_path / "page.html")["files"][0]["images"]) == 25
    assert seen
    weightstore.html_report(path.read_bytes(), output=tmp_path / "page.html")
    assert data_of(tmp_path / "page.html")["files"][0]["path"] == "in memory"


# ---- images ----------------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(rows=st.integers(1, 10**9), columns=st.integers(1, 10**9))
def test_images_are_small(rows, columns):
    row_step, column_step = steps(rows, columns)
    assert len(range(0, rows, row_step)) <= SIDE
    assert len(range(0, columns, column_step)) <= SIDE


def test_pixels():
    image = matrix_image(np.float32([[-2, 0, 1], [np.nan, np.inf, -np.inf]]), 5, 6)
    assert {k: image[k] for k in ("rows", "columns", "row_step", "column_step", "scale")} == {
        "rows": 2,
        "columns": 3,
        "row_step": 5,
        "column_step": 6,
        "scale": 2.0,
    }
    import base64

    assert np.frombuffer(base64.b64decode(image["pixels"]), np.int8).tolist() == [-127, 0, 64, -128, 127, -127]
    assert matrix_image(np.zeros((0, 3)), 1, 1) is None
    assert matrix_image(np.full((1, 1), np.nan), 1, 1)["scale"] == 0


# ---- text that would like to be markup -------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.text())
def test_text_stays_inside_its_script(text):
    made = script_json({"name": text})
    assert json.loads(made) == {"name": text}
    assert not set("<>&\u2028\u2029") & set(made)
    assert made.isascii()


@settings(deadline=None)
@given(st.text())
def test_titles_are_escaped(title):
    made = document(many_tensors(1), title)
    assert made.count("<script") == 2
    assert made.count("</title>") == 1


def test_hostile_names_in_a_page_and_a_notebook(tmp_path):
    path = tmp_path / "model.safetensors"
    weightstore.numpy.save_file({name: np.zeros(1) for name in HOSTILE}, path, metadata={"k": HOSTILE[0]})
    (file,) = report(path)["files"]
    assert file["tensors"]["name"] == sorted(HOSTILE)
    assert HOSTILE[0] not in (tmp_path / "page.html").read_text(encoding="utf-8")
    with weightstore.open(path) as opened:
        html = opened._repr_html_()
    assert HOSTILE[0] not in html
    assert re.findall(r"<(\w+)", html)[:2] == ["p", "iframe"]
    assert set(re.findall(r"<(\w+)", html)) <= set("p iframe details summary table thead tbody tr th td".split())


def test_a_notebook_of_a_large_file_stays_small(tmp_path, monkeypatch):
    monkeypatch.setattr(notebook, "MOST_TENSORS", 250)
    html = weightstore.open(weightstore.numpy.save({f"t{i}": np.zeros(1) for i in range(1000)}))._repr_html_()
    assert "iframe" not in html
    assert "and 800 more" in html
    assert "html_report" in html


# ---- the file --------------------------------------------------------------------------------------------------------


def test_a_page_is_replaced_and_nothing_else(tmp_path):
    path = small_model(tmp_path / "model.safetensors")
    page = tmp_path / "page.html"
    for _ in range(2):
        weightstore.html_report(path, output=page)
    for other in (b"", b"<html>mine</html>", path.read_bytes(), b"x" * 5000 + page.read_bytes()):
        page.write_bytes(other)
        with pytest.raises(weightstore.ConflictError, match=r"page.html: .*not a page of weightstore") as caught:
            weightstore.html_report(path, output=page)
        assert isinstance(caught.value, FileExistsError)
        assert page.read_bytes() == other
    weightstore.html_report(path, output=page, overwrite=True)
    assert data_of(page)
    assert {file.name for file in tmp_path.iterdir()} == {"model.safetensors", "page.html"}


def test_the_source_is_never_replaced_by_its_page(tmp_path):
    path = small_model(tmp_path / "model.safetensors")
    before = path.read_bytes()
    with pytest.raises(weightstore.ConflictError):
        weightstore.html_report(path, output=path)
    assert path.read_bytes() == before


def test_errors_leave_what_is_there(tmp_path, monkeypatch):
    path = small_model(tmp_path / "model.safetensors")
    page = tmp_path / "page.html"
    weightstore.html_report(path, output=page)
    before = page.read_bytes()

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(errors.StoreIOError, match=r"page.html: cannot write the page: No space left") as caught:
        weightstore.html_report(path, output=page)
    assert caught.value.errno == errno.ENOSPC
    assert page.read_bytes() == before
    assert {file.name for file in tmp_path.iterdir()} == {"model.safetensors", "page.html"}


@pytest.mark.parametrize("overwrite", [False, True])
def test_places_where_no_page_can_be(tmp_path, overwrite):
    path = small_model(tmp_path / "model.safetensors")
    os.mkfifo(tmp_path / "pipe")
    for target, kind in (("no/folder/page.html", errors.StoreIOError), (".", ValueError), ("pipe", ValueError)):
        with pytest.raises(kind, match="page"):
            weightstore.html_report(path, output=tmp_path / target, overwrite=overwrite)
    assert {file.name for file in tmp_path.iterdir()} == {"model.safetensors", "pipe"}


def test_a_path_that_is_no_utf8(tmp_path):
    path = os.fsencode(tmp_path / "m") + b"\xff.safetensors"
    os.rename(small_model(tmp_path / "model.safetensors"), path)
    data = report(Path(os.fsdecode(path)))
    assert data["files"][0]["path"].endswith("m\udcff.safetensors")
    with weightstore.open(os.fsdecode(path)) as file:
        file._repr_html_().encode()


def test_an_open_file_has_its_own_options(tmp_path):
    file = weightstore.open(small_model(tmp_path / "model.safetensors"))
    with file, pytest.raises(errors.InvalidArgument, match="a File has its own"):
        weightstore.html_report(file, output=tmp_path / "page.html", opaque="error")


def test_urls_and_missing_sources_are_refused(tmp_path):
    path = small_model(tmp_path / "model.safetensors")
    with pytest.raises(errors.InvalidArgument, match="URL"):
        weightstore.html_report(path, output="s3://bucket/page.html")
    with pytest.raises(FileNotFoundError):
        weightstore.html_report(tmp_path / "none.safetensors", output=tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_a_page_has_the_permissions_of_a_new_file(tmp_path):
    weightstore.html_report(small_model(tmp_path / "model.safetensors"), output=tmp_path / "page.html")
    (tmp_path / "new").touch()
    assert (tmp_path / "page.html").stat().st_mode == (tmp_path / "new").stat().st_mode


def test_the_same_file_gives_the_same_page(tmp_path):
    path = small_model(tmp_path / "model.safetensors")
    pages = [tmp_path / "1.html", tmp_path / "2.html"]
    for page in pages:
        weightstore.html_report(path, output=page, values=True)
    assert pages[0].read_bytes() == pages[1].read_bytes()

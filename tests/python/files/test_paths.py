"""What looks like a path of a local file and is not: URLs, `~`, bytes. Nothing is written under such names."""

import io
import os
import re
from pathlib import Path

import numpy as np
import pytest

import weightstore
import weightstore.numpy as ws

URLS = [
    "s3://bucket/m.safetensors",
    "https://example.com/m.safetensors",
    "hf://org/model/m.safetensors",
    "gs://bucket/m.safetensors",
    "abfs://container@account/m.safetensors",
    "someday+ssh://host/m.safetensors",
]
FILES = {"w": np.arange(4.0)}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def readers(path):
    yield lambda: weightstore.open(path)
    yield lambda: ws.load_file(path)
    yield lambda: weightstore.safe_open(path, "np")
    yield lambda: weightstore.Pager(path)
    yield lambda: weightstore.LayerPager(path, {"a": (0, 1)})
    yield lambda: weightstore.convert(path, "x.bpk")
    yield lambda: weightstore.load_from(FILES, path)
    yield lambda: weightstore.SafetensorsStore.from_file(path)
    yield lambda: weightstore.CheckpointReader(path)


def writers(path):
    yield lambda: ws.save_file(FILES, path)
    yield lambda: weightstore.save_into(FILES, path)
    ws.save_file(FILES, "source.safetensors")
    yield lambda: weightstore.convert("source.safetensors", path)


@pytest.mark.parametrize("url", [*URLS, *map(Path, URLS[:4])], ids=str)
def test_urls_are_refused(url):
    for call in [*readers(url), *writers(url)]:
        with pytest.raises(weightstore.InvalidArgument, match="URLs are not supported"):
            call()
    assert sorted(os.listdir()) == ["source.safetensors"]


@pytest.mark.parametrize("path", ["~/m.safetensors", "~user/m.safetensors", Path("~/m.safetensors")], ids=str)
def test_a_tilde_is_not_expanded(path):
    for call in [*readers(path), *writers(path)]:
        with pytest.raises(weightstore.InvalidArgument, match="os.path.expanduser"):
            call()
    os.mkdir("~")
    ws.save_file(FILES, "~/m.safetensors")
    assert os.listdir("~") == ["m.safetensors"]


@pytest.mark.parametrize("path", ["s3://bucket/checkpoint", "~/checkpoint", "file:///x"])
def test_checkpoints_are_local(path):
    torch = pytest.importorskip("torch")
    tensors = {"w": torch.zeros(1)}
    for make in (
        lambda: weightstore.Saver(path=path, tensors=tensors),
        lambda: weightstore.Loader(path, None, tensors),
    ):
        with pytest.raises(weightstore.InvalidArgument, match="URL|expanduser") as caught:
            make()
        assert isinstance(caught.value, weightstore.CheckpointError)
    assert os.listdir() == []


def test_a_file_url_names_the_path(tmp_path):
    ws.save_file(FILES, tmp_path / "a b.safetensors")
    url = f"file://{tmp_path}/a%20b.safetensors"
    with pytest.raises(weightstore.InvalidArgument) as caught:
        weightstore.open(url)
    path = re.search(r"give the path: '(.*)'", str(caught.value))[1]
    assert list(weightstore.open(path)) == ["w"]


def test_the_advice_works(tmp_path):
    fsspec = pytest.importorskip("fsspec")
    with fsspec.open("memory://bucket/m.safetensors", "wb") as stream:
        stream.write(ws.save(FILES))
    with pytest.raises(weightstore.InvalidArgument) as caught:
        weightstore.open("memory://bucket/m.safetensors")
    advice = re.search(r"such as (fsspec\.open\(.*\)\.open\(\))", str(caught.value))[1]
    with eval(advice) as stream, weightstore.open(stream) as file:
        assert np.array_equal(file["w"].numpy(), FILES["w"])


def test_colons_are_fine_in_names(tmp_path):
    for name in ("a:b.safetensors", "2024-01-01T10:00:00/m.safetensors", "x:/m.safetensors"):
        os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
        ws.save_file(FILES, name)
        assert list(weightstore.open(name)) == ["w"]


def test_bytes_are_contents():
    ws.save_file(FILES, "m.safetensors")
    for data in (b"m.safetensors", bytearray(b"m.safetensors"), os.fsencode(os.path.abspath("m.safetensors"))):
        with pytest.raises(weightstore.InvalidArgument, match=r"contents of a file; .* give '.*m\.safetensors'"):
            weightstore.open(data)
    with pytest.raises(weightstore.InvalidArgument, match="'absent.bpk'"):
        weightstore.open(b"absent.bpk")
    with pytest.raises(weightstore.FormatError):
        weightstore.open(b"some text that is no path")
    assert list(weightstore.open(io.BytesIO(ws.save(FILES)))) == ["w"]

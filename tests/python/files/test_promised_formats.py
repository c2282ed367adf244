"""A name that promises a format: another one under it is refused, whoever opens it. Other names promise nothing."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

import weightstore
import weightstore.compat
import weightstore.numpy
from weightstore import BurnpackStore, PytorchStore, SafetensorsStore, errors

torch = pytest.importorskip("torch")
import weightstore.torch  # noqa: E402

ENDINGS = {"safetensors": ".safetensors", "index": ".safetensors.index.json", "burnpack": ".bpk", "pytorch": ".pt"}


@pytest.fixture
def files(tmp_path):
    """A file of every format, under its own name."""
    made = {format: tmp_path / f"right{ending}" for format, ending in ENDINGS.items()}
    tensors = {"a": np.arange(3, dtype=np.float32)}
    for format in ("safetensors", "index", "burnpack"):
        weightstore.numpy.save_file(tensors, made[format])
    torch.save({"a": torch.arange(3.0)}, made["pytorch"])
    return made


def copied(path, name):
    return str(shutil.copy(path, path.parent / name))


@pytest.mark.parametrize("named", ["safetensors", "index"])
@pytest.mark.parametrize("content", list(ENDINGS))
@pytest.mark.parametrize("upper", [False, True])
def test_open(files, named, content, upper):
    ending = ENDINGS[named].upper() if upper else ENDINGS[named]
    path = copied(files[content], "other" + ending)
    if named == content:
        assert len(weightstore.open(path)) == 1
        return
    with pytest.raises(errors.FormatError, match=f"named as .*; .*a name that ends in {ENDINGS[content]}$") as caught:
        weightstore.open(path)
    assert caught.value.path == path
    assert isinstance(caught.value, errors.SafetensorsError)


def test_everybody_who_opens_by_name(files, tmp_path):
    path = copied(files["pytorch"], "other.safetensors")

    class Module(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = torch.nn.Parameter(torch.zeros(3))

    for read in (
        lambda: weightstore.torch.load_file(path),
        lambda: weightstore.torch.load_model(Module(), path),
        lambda: weightstore.numpy.load_file(path),
        lambda: weightstore.safe_open(path, "pt"),
        lambda: weightstore.compat.safe_open(path, "pt"),
        lambda: SafetensorsStore.from_file(path).keys(),
        lambda: PytorchStore.from_file(path).keys(),
        lambda: BurnpackStore.from_file(path).keys(),
        lambda: weightstore.Pager(path),
        lambda: weightstore.convert(path, tmp_path / "new.bpk"),
    ):
        with pytest.raises(errors.StoreError):
            read()
    with open(path, "rb") as file, pytest.raises(errors.FormatError, match="torch.save"):
        weightstore.open(file)
    assert not (tmp_path / "new.bpk").exists()
    for code, *command in ((2, "list", path), (1, "verify", path), (2, "convert", path, str(tmp_path / "new.bpk"))):
        run = subprocess.run([sys.executable, "-m", "weightstore", *command], capture_output=True, text=True)
        assert run.returncode == code
        assert "torch.save" in run.stderr


@pytest.mark.parametrize(
    "name", ["other", "other.pt", "other.pth", "other.bpk", "other.bin", "other.ckpt", "other.json", "safetensors"]
)
@pytest.mark.parametrize("content", list(ENDINGS))
def test_other_names_promise_nothing(files, name, content):
    assert len(weightstore.open(copied(files[content], name))) == 1


def test_what_would_not_be_read_is_not_written(tmp_path):
    path = tmp_path / "other.safetensors"
    with pytest.raises(errors.StoreError, match="named as a SafeTensors file, but is a Burnpack file"):
        BurnpackStore.from_file(path).collect_from({"a": np.zeros(1)})
    assert not path.exists()


def test_contents_without_a_name(files):
    for content in ("safetensors", "burnpack", "pytorch"):
        data = files[content].read_bytes()
        assert len(weightstore.open(data)) == 1
        assert len(weightstore.open(io.BytesIO(data))) == 1


@pytest.mark.parametrize("name", [b"\xff.safetensors", "häuser.safetensors".encode(), b"line\nbreak.safetensors"])
def test_a_file_object_of_any_name(files, name):
    path = copied(files["safetensors"], os.fsdecode(name))
    with open(path, "rb") as file:
        opened = weightstore.open(file)
        assert opened["a"].bytes() == np.arange(3, dtype=np.float32).tobytes()
        assert opened["a"].shard == path
    with open(path, "r+b") as file:
        file.truncate(20)
    with open(path, "rb") as file, pytest.raises(errors.FormatError) as caught:
        weightstore.open(file)
    assert caught.value.path == path


def test_a_file_object_whose_name_is_no_path(files):
    class Named(io.BytesIO):
        name = "\ud800"

    assert weightstore.open(Named(files["safetensors"].read_bytes()))["a"].shard == "<file object>"

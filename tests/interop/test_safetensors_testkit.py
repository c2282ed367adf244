"""Adversarial SafeTensors files, each with the verdict expected of us; and files that other programs wrote."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import weightstore
from weightstore import StoreError, compat

safetensors = pytest.importorskip("safetensors")


def kit() -> Path | None:
    root = os.environ.get("WEIGHTSTORE_TESTDATA")
    return Path(root, "testkit/safetensors_cases") if root else None


def cases() -> list:
    folder = kit()
    if folder is None:
        return [pytest.param("", "", marks=pytest.mark.skip(reason="WEIGHTSTORE_TESTDATA is not set"))]
    verdicts = json.loads(Path(folder, "verdicts.json").read_text())
    return [pytest.param(name, verdict, id=name) for name, verdict in sorted(verdicts.items())]


def read(path: Path, way: str) -> dict:
    source = path.read_bytes() if way == "bytes" else path
    options = {} if way == "bytes" else {"backend": way}
    with weightstore.open(source, **options) as file:
        return {name: file[name].bytes() for name in file}


@pytest.mark.parametrize("way", ["mmap", "pread", "bytes"])
@pytest.mark.parametrize(("name", "verdict"), cases())
def test_verdict(name, verdict, way):
    path = kit() / f"{name}.safetensors"
    if verdict == "refuse":
        with pytest.raises(weightstore.errors.FormatError) as caught:
            read(path, way)
        assert str(caught.value)
        return
    expected = {key: bytes(tensor["data"]) for key, tensor in safetensors.deserialize(path.read_bytes())}
    assert read(path, way) == expected


def test_every_file_has_a_verdict(testdata):
    folder = testdata / "testkit/safetensors_cases"
    verdicts = json.loads((folder / "verdicts.json").read_text())
    assert {path.stem for path in folder.glob("*.safetensors")} == set(verdicts)
    assert set(verdicts.values()) == {"accept", "refuse"}


@pytest.mark.parametrize(("name", "verdict"), cases())
def test_nothing_is_accepted_that_the_reference_refuses(name, verdict):
    data = (kit() / f"{name}.safetensors").read_bytes()
    try:
        safetensors.deserialize(data)
    except safetensors.SafetensorError:
        assert verdict == "refuse"
        with pytest.raises(StoreError):
            compat.deserialize(data)


@pytest.mark.parametrize("backend", ["mmap", "pread"])
def test_fixtures_read_as_the_reference_reads_them(testdata, contents, backend):
    paths = sorted((testdata / "fixtures/safetensors").glob("*.safetensors"))
    assert paths
    for path in paths:
        expected = {
            name: (tensor["dtype"], tuple(tensor["shape"]), bytes(tensor["data"]))
            for name, tensor in safetensors.deserialize(path.read_bytes())
        }
        with weightstore.open(path, backend=backend) as file, safetensors.safe_open(path, "np") as reference:
            assert file.format == "safetensors"
            assert contents(file) == expected
            assert list(file.keys()) == list(reference.keys())
            assert (file.metadata or None) == (reference.metadata() or None)
            for name in file:
                assert (file[name].numpy() == reference.get_tensor(name)).all()


def test_converting_a_fixture_reproduces_it(testdata, tmp_path):
    for path in sorted((testdata / "fixtures/safetensors").glob("*.safetensors")):
        weightstore.convert(path, tmp_path / path.name)
        assert (tmp_path / path.name).read_bytes() == path.read_bytes()

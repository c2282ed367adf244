"""`weightstore verify`, its manifests, and `weightstore set-metadata`."""

from __future__ import annotations

import os
import shutil
import subprocess

import numpy as np
import pytest

import weightstore
import weightstore.numpy
from support.command import run


def copy(path, folder):
    target = folder / path.name
    (shutil.copytree if path.is_dir() else shutil.copy)(path, target)
    return target


def damage(path, at=-1):
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_checksums_of_every_kind(files):
    for kind, path in files.items():
        done = run("verify", path)
        assert done.status == 0, (kind, done.err)
        assert "checksums are right" in done.out
        assert run("verify", path, "--json").json["sound"] is True


def test_damage_is_1_and_what_cannot_be_read_is_2(files, tmp_path):
    path = copy(files["safetensors"], tmp_path)
    damage(path)
    done = run("verify", path)
    assert done.status == 1
    assert "model.layers.0.weight" in done.err or "model.layers.1.weight" in done.err or "tensor" in done.err
    report = run("verify", path, "--json")
    assert report.status == 1
    assert report.json["sound"] is False
    damage(path, 9)
    assert run("verify", path).status == 1
    folder = copy(files["directory"], tmp_path)
    next(folder.glob("*-00002-of-*.safetensors")).unlink()
    assert run("verify", folder).status == 2
    assert run("verify", tmp_path / "missing").status == 2


def test_tensors_without_checksums_fail(tmp_path):
    path = tmp_path / "m.safetensors"
    weightstore.numpy.save_file({"a": np.zeros(3)}, path)
    done = run("verify", path)
    assert done.status == 1
    assert "1 of 1 tensors have no checksum" in done.err


def test_a_manifest_is_written_and_checked_and_sha256sum_takes_it(files, tmp_path):
    for kind, original in files.items():
        folder = tmp_path / kind
        folder.mkdir()
        path = copy(original.parent, folder) / original.name if kind == "set" else copy(original, folder)
        manifest = (path if path.is_dir() else path.parent) / "SHA256SUMS"
        done = run("verify", path, "--manifest", manifest)
        assert done.status == 0, done.err
        assert "written" in done.out
        assert (
            subprocess.run(["sha256sum", "--strict", "--quiet", "-c", manifest.name], cwd=manifest.parent).returncode
            == 0
        )
        text = manifest.read_text()
        done = run("verify", path, "--manifest", manifest)
        assert done.status == 0
        assert "are as listed" in done.out
        assert manifest.read_text() == text
        if kind in ("set", "directory"):
            assert len(text.splitlines()) >= 3
        data = next(manifest.parent.glob("*0001*")) if kind in ("set", "directory") else path
        manifest.write_text(text.replace(text[:8], "00000000", 1))
        done = run("verify", path, "--manifest", manifest)
        assert done.status == 1
        assert "SHA-256" in done.err
        assert run("verify", path, "--manifest", manifest, "--overwrite").status == 0
        assert manifest.read_text() == text
        manifest.write_text("nonsense\n")
        assert run("verify", path, "--manifest", manifest).status == 1
        manifest.write_text(f"{'0' * 64}  gone\n")
        assert run("verify", path, "--manifest", manifest).status == 1
        assert data.exists()


def test_a_manifest_makes_up_for_missing_checksums(tmp_path):
    path = tmp_path / "a\\b\nc.safetensors"
    weightstore.numpy.save_file({"a": np.zeros(3)}, path)
    manifest = tmp_path / "sums"
    assert run("verify", path).status == 1
    assert run("verify", path, "--manifest", manifest).status == 0
    assert run("verify", path, "--manifest", manifest).status == 0
    assert subprocess.run(["sha256sum", "--quiet", "-c", "sums"], cwd=tmp_path).returncode == 0


# ---- set-metadata ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["safetensors", "burnpack", "set"])
def test_metadata_changes_and_nothing_else(files, tmp_path, kind):
    path = copy(files[kind].parent, tmp_path) / files[kind].name if kind == "set" else copy(files[kind], tmp_path)
    before = weightstore.numpy.load_file(path)
    os.chmod(path, 0o640)
    done = run("set-metadata", path, "author=A. Turing", "note=x=y", "empty=")
    assert done.status == 0, done.err
    with weightstore.open(path) as file:
        assert {key: file.metadata[key] for key in ("author", "note", "empty")} == {
            "author": "A. Turing",
            "note": "x=y",
            "empty": "",
        }
    assert run("set-metadata", path, "author=B", "--remove", "note", "--json").json["metadata"]["author"] == "B"
    with weightstore.open(path) as file:
        assert "note" not in file.metadata
    after = weightstore.numpy.load_file(path)
    assert before.keys() == after.keys()
    assert all(before[name].tobytes() == after[name].tobytes() for name in before)
    assert run("verify", path).status == 0
    assert path.stat().st_mode & 0o777 == 0o640
    assert not [name for name in os.listdir(path.parent) if name.startswith(".")]


def test_metadata_of_a_large_file_keeps_its_bytes(tmp_path):
    path = tmp_path / "big.safetensors"
    array = np.random.default_rng(0).integers(0, 255, 3_000_001, np.uint8)
    weightstore.numpy.save_file({"a": array, "b": array[:7], "c": array[::2]}, path, checksums=True)
    weightstore.set_metadata(path, {"key": "v" * 5000})
    with weightstore.open(path, verify="full") as file:
        assert np.array_equal(file["a"].numpy(), array)
        assert file.metadata["key"] == "v" * 5000
    safetensors = pytest.importorskip("safetensors.numpy")
    assert np.array_equal(safetensors.load_file(path)["c"], array[::2])


def test_metadata_is_refused_where_it_cannot_be(files, tmp_path):
    for arguments in (
        (files["npz"], "a=b"),
        (files["safetensors"],),
        (files["safetensors"], "nothing"),
        (files["safetensors"], "=x"),
        (files["safetensors"], "--remove", "not there"),
        (files["safetensors"], "weightstore.crc32c=x", "--remove", "made", "made=2"),
        (tmp_path / "missing.safetensors", "a=b"),
    ):
        data = files["safetensors"].read_bytes()
        done = run("set-metadata", *arguments)
        assert done.status == 2, arguments
        assert files["safetensors"].read_bytes() == data

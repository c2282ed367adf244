"""Files that real Burn programs of five releases wrote are read, copied and dequantized as Burn meant them.

`burn/<release>/<file>` was written by Burn; `<file>.json` says what Burn put into it, and what its CPU backend reads from quantized
tensors. A chosen set is here; WEIGHTSTORE_TESTDATA has more.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest

import weightstore
from weightstore import BurnpackStore, errors

RELEASES = ["0.19", "0.20", "0.21", "0.22", "0.23"]
# Burn keeps a bool in one of three ways, and from 0.21 on says in which.
BOOLS = {"Native": "BOOL", "U8": "BoolU8", "U32": "BoolU32"}


def files_of(release: str) -> list[Path]:
    more = Path(os.environ.get("WEIGHTSTORE_TESTDATA", ""), "review", "repro", "burn", "files")
    folders = [Path(__file__).parent / "burn" / release, more / release]
    found = {path.name: path for folder in reversed(folders) if folder.is_dir() for path in folder.iterdir()}
    return [path for _, path in sorted(found.items()) if path.suffix in (".bpk", ".safetensors")]


FILES = [pytest.param(path, id=f"{release}/{path.name}") for release in RELEASES for path in files_of(release)]
BURNPACK = [file for file in FILES if file.values[0].suffix == ".bpk"]
QUANTIZED = [file for file in BURNPACK if file.values[0].name.startswith(("quant", "schemes"))]


def dtype_of(burn: object) -> str:
    if isinstance(burn, str):
        return {"Bool": "BOOL"}.get(burn, burn)
    return BOOLS[burn["Bool"]] if "Bool" in burn else "QFloat"


def described(path: Path) -> dict:
    return json.loads((path.parent / (path.name + ".json")).read_text())


def test_every_release_is_here():
    for release in RELEASES:
        assert any((Path(__file__).parent / "burn" / release).glob("*.bpk"))


@pytest.mark.parametrize("path", FILES)
def test_contents(path):
    info = described(path)
    with weightstore.open(path) as file:
        found = {name: (file[name].dtype, list(file[name].shape), file[name].bytes()) for name in file}
        assert {
            name: (dtype, shape, hashlib.sha256(data).hexdigest()) for name, (dtype, shape, data) in found.items()
        } == {
            tensor["name"]: (dtype_of(tensor["dtype"]), tensor["shape"], tensor["sha256"]) for tensor in info["tensors"]
        }
        if path.suffix == ".bpk":
            ids = {tensor["name"]: tensor["param_id"] for tensor in info["tensors"]}
            assert {name: file[name].param_id for name in file} == ids
            assert file.metadata == info.get("metadata", file.metadata)
            scalars = info.get("scalars", {})
            assert file.scalars.keys() == scalars.keys()
            assert file.scalars.unsigned == {name for name, value in scalars.items() if "UInt" in value}


@pytest.mark.parametrize("path", [file for file in BURNPACK if file.values[0].parent.name != "0.19"])
def test_copies_are_the_same_bytes(path, tmp_path):
    weightstore.convert(path, tmp_path / "copy.bpk")
    original = path.read_bytes()
    assert (tmp_path / "copy.bpk").read_bytes() == original
    info = described(path)
    if any(tensor["param_id"] is None for tensor in info["tensors"]):
        return  # a store gives every tensor an id
    source = BurnpackStore.from_file(path)
    copy = BurnpackStore.from_bytes(None).clear_metadata().scalars(source.get_scalars())
    for key, value in source.get_metadata().items():
        copy.metadata(key, value)
    snapshots = source.get_all_snapshots()
    in_order = [tensor["name"] for tensor in info["tensors"]]
    if "scalars" in info:  # the description is sorted there
        begins = {name: original.index(snapshots[name].to_data().bytes) for name in snapshots}
        in_order = sorted(begins, key=begins.__getitem__)
    copy.collect_from([snapshots[name] for name in in_order])
    assert copy.get_bytes() == original


def numbers_of(handle, release: str) -> np.ndarray:
    """Raw files of 0.23 do not name their release, and nothing else in them tells it."""
    return handle.dequantize(burn=release).numpy()


@pytest.mark.parametrize("path", QUANTIZED)
def test_quantized_numbers(path):
    release = path.parent.name
    info = described(path)
    with weightstore.open(path) as file:
        for name, digits in info["dequantized"].items():
            expected = np.frombuffer(bytes.fromhex(digits), "<u4").reshape(file[name].shape)
            numbers = numbers_of(file[name], release)
            assert numbers.dtype == np.float32
            np.testing.assert_array_equal(numbers.view("u4"), expected, err_msg=name)
            part = file[name].dequantize(burn=release)[1:3]
            np.testing.assert_array_equal(part.numpy().view("u4"), expected[1:3], err_msg=name)
            # A store says its release, and so no caller has to. Only native E4M3 and the like depend on it.
            if "version" in file.metadata or not name.startswith(("e4m3_native", "e5m2_native", "e2m1_native")):
                np.testing.assert_array_equal(np.asarray(file[name].dequantize()).view("u4"), expected, err_msg=name)


@pytest.mark.parametrize("path", [file for file in QUANTIZED if file.values[0].name.startswith("quant")])
def test_quantized_files_become_safetensors(path, tmp_path):
    with pytest.raises(errors.StoreError, match="dtype"):
        weightstore.convert(path, tmp_path / "n.safetensors")
    weightstore.convert(path, tmp_path / "n.safetensors", dtype="F32")
    with weightstore.open(tmp_path / "n.safetensors") as file:
        for name, digits in described(path)["dequantized"].items():
            assert file[name].dtype == "F32"
            assert file[name].bytes().hex() == digits

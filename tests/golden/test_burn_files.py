"""Files that real Burn programs of five releases wrote are read as Burn meant them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

import weightstore

RELEASES = ["0.19", "0.20", "0.21", "0.22", "0.23"]
# Burn keeps a bool in one of three ways, and from 0.21 on says in which.
BOOLS = {"Native": "BOOL", "U8": "BoolU8", "U32": "BoolU32"}


def dtype_of(burn: object) -> str:
    if isinstance(burn, str):
        return {"Bool": "BOOL"}.get(burn, burn)
    return BOOLS[burn["Bool"]] if "Bool" in burn else "QFloat"


def described(path: Path) -> dict:
    return json.loads((path.parent / (path.name + ".json")).read_text())


@pytest.mark.parametrize("release", RELEASES)
def test_burn_files(testdata, release):
    folder = testdata / "review" / "repro" / "burn" / "files" / release
    if not folder.is_dir():
        pytest.skip(f"the test data has no files of Burn {release}")
    files = [path for path in sorted(folder.iterdir()) if path.suffix in (".bpk", ".safetensors")]
    assert files
    for path in files:
        expected = described(path)["tensors"]
        with weightstore.open(path) as file:
            found = {name: (file[name].dtype, list(file[name].shape), file[name].bytes()) for name in file}
        assert {
            name: (dtype, shape, hashlib.sha256(data).hexdigest()) for name, (dtype, shape, data) in found.items()
        } == {tensor["name"]: (dtype_of(tensor["dtype"]), tensor["shape"], tensor["sha256"]) for tensor in expected}, (
            path
        )

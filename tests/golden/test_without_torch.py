"""Everything golden is opened, listed, read and verified where torch is not installed."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path

import pytest

import weightstore
from golden import content

HERE = Path(__file__).parent
CHECKPOINTS = sorted(HERE.glob("[0-9]*/checkpoint-*"))
SETS = sorted(HERE.glob("[0-9]*/set"))
FILES = sorted(
    path
    for pattern in ("*.safetensors", "*.bpk")
    for path in [*HERE.glob(f"[0-9]*/{pattern}"), *HERE.glob(f"burn/*/{pattern}")]
)

# Imports of torch fail, as they do where torch is not installed. Prints what each path of the arguments holds.
WITHOUT_TORCH = """
import contextlib, hashlib, io, json, sys
sys.modules["torch"] = None
import weightstore
from weightstore._cli.main import main

found = {}
for path in sys.argv[1:]:
    with weightstore.open(path) as file:
        listed = {}
        for name, handle in file.items():
            data = handle.bytes()
            try:
                assert handle.numpy().tobytes() == data or handle.dtype == "BoolU32", (path, name)
            except TypeError:  # types that numpy does not have
                pass
            listed[name] = [str(handle.dtype), list(handle.shape), hashlib.sha256(data).hexdigest()]
        file.verify()
        found[path] = listed
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert main(["list", path]) == 0, path
    assert all(name in printed.getvalue() for name in listed if name.isprintable()), path
assert sys.modules["torch"] is None
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, list[object]]]:
    paths = [str(path) for path in (*CHECKPOINTS, *SETS, *FILES)]
    assert len(paths) > 50
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, *paths], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, dict[str, list[object]]] = json.loads(done.stdout)
    assert list(result) == paths
    return result


def digest(data: bytes) -> str:
    import hashlib

    return hashlib.sha256(data).hexdigest()


def test_all_files_read_as_they_do_with_torch(found):
    for path in FILES:
        with weightstore.open(path) as file:
            expected = {
                name: [str(handle.dtype), list(handle.shape), digest(handle.bytes())] for name, handle in file.items()
            }
        assert found[str(path)] == expected, path


def test_sets_and_dense_tensors_of_checkpoints(found):
    expected = {name: [dtype, list(shape), digest(data)] for name, (dtype, shape, data) in content.shard_set().items()}
    for path in SETS:
        assert found[str(path)] == expected
    for path in CHECKPOINTS:
        assert {name: value for name, value in found[str(path)].items() if "@" not in name} == expected


def rows_of(path: Path, table: str) -> dict[int, tuple[list[float], list[float]]]:
    with weightstore.open(path) as file:
        columns = [file[f"{table}@{slot}"] for slot in ("id", "embedding", "exp_avg")]
        ids, *values = [
            list(struct.iter_unpack(f"<{width}{code}", column.bytes()))
            for column, width, code in zip(columns, (1, 4, 2), "qff", strict=True)
        ]
        return {id: (list(a), list(b)) for (id,), a, b in zip(ids, *values, strict=True)}


@pytest.mark.parametrize("path", CHECKPOINTS, ids=[f"{path.parent.name}-{path.name}" for path in CHECKPOINTS])
def test_columns_of_tables(found, path):
    for table, ids in {"user": content.TABLE_IDS, **content.CHILD_IDS}.items():
        assert [found[str(path)][f"{table}@{slot}"][:2] for slot in ("id", "embedding", "exp_avg")] == [
            ["I64", [len(ids)]],
            ["F32", [len(ids), 4]],
            ["F32", [len(ids), 2]],
        ]
        assert rows_of(path, table) == {
            id: (content.row(table, "embedding", id, 4), content.row(table, "exp_avg", id, 2)) for id in ids
        }

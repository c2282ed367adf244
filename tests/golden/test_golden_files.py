"""Files and checkpoints that earlier versions wrote are read, every byte of them."""

from __future__ import annotations

from pathlib import Path

import pytest

import weightstore
from golden import content

HERE = Path(__file__).parent
VERSIONS = sorted(path for path in HERE.iterdir() if path.is_dir() and path.name[0].isdigit())

every_version = pytest.mark.parametrize("folder", VERSIONS, ids=[path.name for path in VERSIONS])


@every_version
def test_safetensors(folder, contents):
    expected = content.tensors_of(content.SAFETENSORS_TYPES)
    with weightstore.open(folder / "bare.safetensors") as file:
        assert contents(file) == expected
        assert file.metadata == {}
    with weightstore.open(folder / "checked.safetensors", verify="full") as file:
        assert contents(file) == expected
        assert {key: file.metadata[key] for key in content.METADATA} == content.METADATA


@every_version
@pytest.mark.parametrize("burn", ["0.20", "0.21", "0.22"])
def test_burnpack(folder, burn, contents):
    expected = content.tensors_of(content.BURNPACK_TYPES)
    with weightstore.open(folder / f"burn-{burn}.bpk", verify="full") as file:
        found = contents(file)
        _, shape, data = found.pop("quantized")
        assert found == expected
        assert (shape, data) == (content.QUANTIZED_SHAPE, content.values("quantized", content.QUANTIZED_BYTES))
        assert [file[name].param_id for name in expected] == list(range(1000, 1000 + len(expected)))
        assert file["quantized"].param_id == 7
        assert {key: file.metadata[key] for key in content.METADATA} == content.METADATA
        assert dict(file.scalars) == content.SCALARS
        assert {name: type(value) for name, value in file.scalars.items()} == {
            name: type(value) for name, value in content.SCALARS.items()
        }


@every_version
def test_set_of_shards(folder, contents):
    with weightstore.open(folder / "set" / "model.safetensors.index.json", verify="full") as file:
        assert contents(file) == content.shard_set()

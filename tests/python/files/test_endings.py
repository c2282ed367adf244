"""Which format a name means to whoever writes."""

import numpy as np
import pytest

import weightstore
import weightstore.numpy as wn
from weightstore import _core, errors

TENSORS = {"a": np.zeros(3, np.float32)}
READ_ONLY = ["m.PT", *(f"m{ending}" for each in _core.FORMATS if not each.writable for ending in each.endings)]


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("m.safetensors", "safetensors"),
        ("M.SafeTensors", "safetensors"),
        ("m.bpk", "burnpack"),
        ("m.BPK", "burnpack"),
        ("m.safetensors.index.json", "safetensors"),
        ("m", "safetensors"),
        (".hidden", "safetensors"),
        ("m.st", "safetensors"),
        ("m.pt.tmp", "safetensors"),
        ("bpk", "safetensors"),
    ],
)
def test_verbs_write_safetensors_unless_the_ending_says_otherwise(tmp_path, name, format):
    wn.save_file(TENSORS, tmp_path / name)
    assert (tmp_path / name).exists()
    assert weightstore.open(tmp_path / name).format == format


@pytest.mark.parametrize("name", READ_ONLY)
@pytest.mark.parametrize("door", ["numpy", "torch", "model"])
def test_verbs_refuse_endings_of_formats_that_are_only_read(tmp_path, name, door):
    def save() -> None:
        if door == "numpy":
            wn.save_file(TENSORS, tmp_path / name)
            return
        torch = pytest.importorskip("torch")
        import weightstore.torch as wt

        if door == "torch":
            wt.save_file({"a": torch.zeros(3)}, tmp_path / name)
        else:
            wt.save_model(torch.nn.Linear(2, 2), tmp_path / name)

    with pytest.raises(errors.InvalidArgument, match=r"does not write.*\.safetensors"):
        save()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["m.pt", "m.npz", "m", "m.st", ".safetensors", "bpk"])
def test_convert_refuses_every_other_ending(tmp_path, name):
    wn.save_file(TENSORS, tmp_path / "source.safetensors")
    with pytest.raises(errors.InvalidArgument, match=r"use .*\.safetensors"):
        weightstore.convert(tmp_path / "source.safetensors", tmp_path / name)
    assert not (tmp_path / name).exists()

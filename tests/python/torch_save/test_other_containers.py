"""Archives that other programs packed, sets of files, and tensors of distributed training."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import zipfile

import pytest

import weightstore
from support.torch_files import save
from weightstore import FormatError, PytorchError, PytorchStore, StoreError, load_from

torch = pytest.importorskip("torch")

STATE = {
    "a": torch.arange(6.0).reshape(2, 3),
    "t": torch.arange(6.0).reshape(2, 3).T,
    "b.c": torch.ones(2, dtype=torch.int8),
}


def equal(source, expected=STATE) -> None:
    with weightstore.open(source) as file:
        assert list(file) == sorted(expected)
        assert all(torch.equal(file[name].torch(), value) for name, value in expected.items())


def test_an_archive_with_records_for_its_folders(tmp_path):
    """As `zip -0 -r` writes it."""
    packed = zipfile.ZipFile(io.BytesIO(save(STATE)))
    packed.extractall(tmp_path)
    (root,) = {name.partition("/")[0] for name in packed.namelist()}
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for folder in (f"{root}/", f"{root}/data/", f"{root}/.data/"):
            archive.writestr(folder, b"")
        for name in packed.namelist():
            archive.writestr(name, packed.read(name))
    equal(stream.getvalue())
    with weightstore.open(stream.getvalue(), verify="full") as file:
        assert file.verify() == 3


@pytest.mark.skipif(shutil.which("zip") is None, reason="needs the command zip")
def test_an_archive_of_the_command_zip(tmp_path):
    packed = zipfile.ZipFile(io.BytesIO(save(STATE)))
    packed.extractall(tmp_path)
    (root,) = {name.partition("/")[0] for name in packed.namelist()}
    subprocess.run(["zip", "-q", "-0", "-r", "x.pt", root], cwd=tmp_path, check=True)
    equal(tmp_path / "x.pt")


def write_set(folder, parts, **changes):
    names = [f"pytorch_model-{i + 1:05}-of-{len(parts):05}.bin" for i in range(len(parts))]
    for name, part in zip(names, parts, strict=True):
        torch.save(part, folder / name)
    mapped = {key: name for name, part in zip(names, parts, strict=True) for key in part}
    index = folder / "pytorch_model.bin.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 100}, "weight_map": mapped | changes}))
    return index


def test_a_set_of_bin_files(tmp_path):
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    state = dict(module.state_dict())
    state["1.weight"] = state["1.weight"].T.contiguous().T  # gathered: a source of its own
    index = write_set(tmp_path, [dict(list(state.items())[:2]), dict(list(state.items())[2:])])
    equal(index, state)
    with weightstore.open(index) as file:
        assert file.format == "pytorch"
        assert file.metadata == {}
        assert file["1.bias"].shard.endswith("pytorch_model-00002-of-00002.bin")
        assert all(torch.equal(value, state[name]) for name, value in file.load(framework="torch").items())
    weightstore.convert(index, tmp_path / "whole.safetensors")
    equal(tmp_path / "whole.safetensors", state)
    target = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    assert load_from(target, PytorchStore.from_file(index)).missing == []
    assert torch.equal(target[1].weight, module[1].weight)
    with pytest.raises(StoreError, match="checksum"):
        weightstore.open(index, verify="full")


def test_a_set_of_bin_files_that_is_not_what_its_index_says(tmp_path):
    parts = [{"a": torch.ones(1), "z": torch.ones(1).expand(3)}, {"b": torch.ones(2)}]
    with pytest.raises(FormatError, match="but it is in"):
        weightstore.open(write_set(tmp_path, parts, a="pytorch_model-00002-of-00002.bin"))
    with pytest.raises(FormatError, match="does not hold it"):
        weightstore.open(write_set(tmp_path, parts, c="pytorch_model-00002-of-00002.bin"))
    with pytest.raises(FormatError, match="both"):
        weightstore.open(write_set(tmp_path, parts, c="c.safetensors"))
    index = write_set(tmp_path, parts)
    (tmp_path / "pytorch_model-00002-of-00002.bin").write_bytes(b"\x08\0\0\0\0\0\0\0{}      ")
    with pytest.raises(FormatError, match="which it is not"):
        weightstore.open(index)


def test_a_set_of_bin_files_leaves_out_what_a_file_would(tmp_path):
    parts = [{"a": torch.ones(1), "s": torch.eye(2).to_sparse()}, {"b": torch.ones(2)}]
    index = write_set(tmp_path, parts)
    with pytest.raises(FormatError, match="'s'.*sparse|sparse"):
        weightstore.open(index, opaque="error")
    data = json.loads(index.read_text())
    del data["weight_map"]["s"]
    index.write_text(json.dumps(data))
    with weightstore.open(index) as file:
        assert [value.name for value in file.left_out] == ["s"]


class Wrapper(torch.Tensor):
    """Two tensors that are one, as quantization libraries make them."""

    @staticmethod
    def __new__(cls, a, b):
        return torch.Tensor._make_wrapper_subclass(cls, a.size(), dtype=a.dtype, device=a.device)

    def __init__(self, a, b) -> None:
        self.a, self.b = a, b

    @classmethod
    def __torch_dispatch__(cls, function, kinds, arguments=(), keywords=None):
        raise NotImplementedError


class Parameter4Bit(torch.nn.Parameter):
    pass


def test_tensors_of_other_classes():
    data = save(
        {"q": Wrapper(torch.ones(2), torch.zeros(2)), "p": Parameter4Bit(torch.arange(2.0)), "w": torch.ones(1)}
    )
    with weightstore.open(data) as file:
        assert list(file) == ["p", "w"]
        assert torch.equal(file["p"].torch(), torch.arange(2.0))
        (left,) = file.left_out
        assert left.name == "q"
        assert left.type.endswith(".Wrapper")
        assert "made of other tensors" in left.reason
        with pytest.raises(PytorchError, match="made of other tensors"):
            file["q"]


def test_the_local_part_of_a_distributed_tensor(tmp_path):
    import torch.distributed as dist

    if not dist.is_available():
        pytest.skip("this torch has no torch.distributed")
    from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    try:
        value = torch.arange(6.0).reshape(2, 3)
        made = distribute_tensor(value, init_device_mesh("cpu", (1,)), [Shard(0)])
        data = save({"d": made, "p": torch.nn.Parameter(made), "w": torch.ones(1)})
    finally:
        dist.destroy_process_group()
    with weightstore.open(data) as file:
        assert list(file) == ["d", "p", "w"]
        assert torch.equal(file["d"].torch(), value)
        assert torch.equal(file["p"].torch(), value)
        assert all(left.type.endswith("DTensorSpec") for left in file.left_out)

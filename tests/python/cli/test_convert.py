"""`weightstore convert`: every option, compared with what the library does and with numpy."""

from __future__ import annotations

import json

import numpy as np
import pytest

import weightstore
import weightstore.numpy
from support.command import TENSORS, run
from weightstore._cli.main import main


def load(path):
    return weightstore.numpy.load_file(path)


def same(a, b):
    return a.keys() == b.keys() and all(a[n].dtype == b[n].dtype and a[n].tobytes() == b[n].tobytes() for n in a)


def test_every_kind_to_every_format_as_the_library_does(files, tmp_path):
    for kind, source in files.items():
        for ending in (".safetensors", ".bpk"):
            target, other = tmp_path / (kind + ending), tmp_path / (f"{kind}-library" + ending)
            done = run("convert", source, target)
            assert (done.status, done.out) == (0, ""), done.err
            weightstore.convert(source, other)
            assert target.read_bytes() == other.read_bytes()
            assert same(load(target), TENSORS)


def test_checkpoints_become_files(golden, tmp_path):
    done = run("convert", golden / "checkpoint-plain", tmp_path / "c.safetensors")
    assert done.status == 0, done.err
    weightstore.convert(golden / "checkpoint-plain", tmp_path / "d.safetensors")
    assert (tmp_path / "c.safetensors").read_bytes() == (tmp_path / "d.safetensors").read_bytes()


def test_sharding_under_any_name_and_merging(files, tmp_path):
    done = run("convert", files["burnpack"], tmp_path / "m.safetensors", "--max-shard-size", "50B")
    assert done.status == 0, done.err
    assert not (tmp_path / "m.safetensors").exists()
    index = tmp_path / "m.safetensors.index.json"
    shards = sorted(tmp_path.glob("m-*.safetensors"))
    assert len(shards) == 3
    assert same(load(index), TENSORS)
    plan = run(
        "convert", files["burnpack"], tmp_path / "n.safetensors", "--max-shard-size", "50B", "--dry-run", "--json"
    ).json
    assert plan["shards"] == 3
    assert run("convert", index, tmp_path / "merged.safetensors").status == 0
    assert same(load(tmp_path / "merged.safetensors"), TENSORS)
    whole = run("convert", files["burnpack"], tmp_path / "whole.safetensors", "--max-shard-size", "1GB")
    assert whole.status == 0
    assert (tmp_path / "whole.safetensors").exists()
    again = tmp_path / "set2.safetensors.index.json"
    assert run("convert", index, again, "--max-shard-size", "1kB").status == 0
    assert same(load(again), TENSORS)
    refused = run("convert", index, tmp_path / "m.bpk", "--max-shard-size", "1kB")
    assert refused.status == 2
    assert "not sharded" in refused.err


def test_names(files, tmp_path):
    target = tmp_path / "m.safetensors"
    options = [
        "--top-level-key",
        "model",
        "--include",
        "layers|norm",
        "--exclude",
        r"layers\.1\.",
        "--rename",
        r"^layers\.(\d+)=>block$1",
        "--rename",
        "bias=>b",
    ]
    assert run("convert", files["safetensors"], target, *options).status == 0
    assert sorted(load(target)) == ["block0.weight", "norm.b"]
    assert np.array_equal(load(target)["block0.weight"], TENSORS["model.layers.0.weight"])
    assert run("verify", target).status == 0  # the checksums came along under the new names
    weightstore.convert(
        files["safetensors"], tmp_path / "library.safetensors", top_level_key="model", include=["layers|norm"],
        exclude=r"layers\.1\.", rename=[(r"^layers\.(\d+)", "block$1"), ("bias", "b")],
    )  # fmt: skip
    assert target.read_bytes() == (tmp_path / "library.safetensors").read_bytes()

    for bad, words in (
        (["--include", "nothing at all"], "none of the 4 tensors"),
        (["--top-level-key", "optimizer"], "none of the 4 tensors"),
        (["--rename", "weight"], "=>"),
        (["--rename", r"\d=>"], "both"),
        (["--rename", "(=>x"], "("),
        (["--rename", r"(a)=>$2"], "2"),
    ):
        done = run("convert", files["safetensors"], tmp_path / "bad.safetensors", *bad)
        assert done.status == 2, bad
        assert words in done.err
        assert not (tmp_path / "bad.safetensors").exists()


def test_types(tmp_path):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    source, target = tmp_path / "m.safetensors", tmp_path / "half.safetensors"
    rng = np.random.default_rng(0)
    tensors = {
        "a": rng.standard_normal((33, 5)).astype("f4"),
        "b": rng.standard_normal(7),
        "c": np.arange(5),
        "d": np.ones(2, "f2"),
    }
    weightstore.numpy.save_file(tensors, source, checksums=True)
    assert run("convert", source, target, "--dtype", "bf16").status == 0
    found = load(target)
    assert found["a"].tobytes() == tensors["a"].astype(ml_dtypes.bfloat16).tobytes()
    assert {name: str(array.dtype) for name, array in found.items()} == {
        "a": "bfloat16",
        "b": "bfloat16",
        "c": "int64",
        "d": "bfloat16",
    }
    assert run("verify", target).status == 1  # what was cast has no checksum of the source
    assert run("convert", source, target, "--dtype", "bf16", "--checksums", "--overwrite").status == 0
    assert run("verify", target).status == 0
    assert run("convert", source, target, "--dtype", "int8", "--overwrite").status == 2
    plan = run("convert", source, tmp_path / "x.bpk", "--dtype", "F16", "--dry-run")
    assert "F32 => F16" in plan.out


def test_quantized_tensors_need_a_type(tmp_path):
    source, target = tmp_path / "q.bpk", tmp_path / "m.safetensors"
    store = weightstore.BurnpackStore.from_file(source).with_to_adapter(weightstore.quantize("Q8S"))
    store.collect_from({"w": np.linspace(-1, 1, 64, dtype="f4").reshape(8, 8)})
    refused = run("convert", source, target)
    assert refused.status == 2
    assert "QFloat" in refused.err
    assert run("convert", source, target, "--dtype", "f16").status == 0
    with weightstore.open(source) as file:
        assert np.array_equal(load(target)["w"], file["w"].dequantize("F16").numpy())


def test_dry_run_writes_nothing(files, tmp_path):
    done = run("convert", files["safetensors"], tmp_path / "m.bpk", "--rename", "model=>m", "--dry-run")
    assert done.status == 0
    assert "model.norm.bias => m.norm.bias" in done.out
    assert "4 tensors, 112 B, as Burnpack" in done.out
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "m.bpk").write_bytes(b"precious")
    assert run("convert", files["safetensors"], tmp_path / "m.bpk", "--dry-run").status == 2
    assert run("convert", files["safetensors"], tmp_path / "m.bpk", "--dry-run", "--overwrite").status == 0
    assert (tmp_path / "m.bpk").read_bytes() == b"precious"


def test_the_plan_is_what_is_written(files, tmp_path):
    target = tmp_path / "m.safetensors"
    dry = run("convert", files["burnpack"], target, "--dtype", "f64", "--dry-run", "--json").json
    assert run("convert", files["burnpack"], target, "--dtype", "f64", "--json").json == dry
    listed = run("list", target, "--json", "--sort", "file").json["tensors"]
    assert [(t["name"], t["dtype"], t["shape"], t["nbytes"]) for t in dry["tensors"]] == [
        (t["name"], t["dtype"], t["shape"], t["nbytes"]) for t in listed
    ]


# ---- adapters --------------------------------------------------------------------------------------------------------

NET = """
import torch
class Net(torch.nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.fc = torch.nn.Linear(width, 3)
        self.norm = torch.nn.LayerNorm(3)
        self.bn = torch.nn.BatchNorm1d(3)
class Needy(Net):
    def __init__(self, width):
        super().__init__(width)
class Packed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = torch.nn.LSTM(4, 3)
"""


@pytest.fixture
def net(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    (tmp_path / "mynet.py").write_text(NET)
    monkeypatch.syspath_prepend(tmp_path)
    import importlib

    module = importlib.import_module("mynet")
    importlib.reload(module)
    torch.manual_seed(0)
    made = module.Net()
    import weightstore.torch

    weightstore.torch.save_file(made.state_dict(), tmp_path / "net.safetensors")
    return made


def test_to_burn_and_back(net, tmp_path):
    source, burn = tmp_path / "net.safetensors", tmp_path / "net.bpk"
    done = run("convert", source, burn, "--adapter", "pytorch-to-burn", "--module", "mynet:Net", cwd=tmp_path)
    assert done.status == 0, done.err
    store = weightstore.BurnpackStore.from_file(tmp_path / "store.bpk").with_to_adapter(
        weightstore.PyTorchToBurnAdapter()
    )
    store.collect_from(net)
    found, expected = load(burn), load(tmp_path / "store.bpk")
    assert same(found, expected)
    assert found["fc.weight"].shape == (4, 3)
    assert sorted(found) == [
        "bn.beta",
        "bn.gamma",
        "bn.running_mean",
        "bn.running_var",
        "fc.bias",
        "fc.weight",
        "norm.beta",
        "norm.gamma",
    ]

    types = tmp_path / "types.json"
    types.write_text(json.dumps({"fc": "Linear", "norm": "LayerNorm", "bn": "BatchNorm"}))
    back = tmp_path / "back.safetensors"
    done = run("convert", burn, back, "--adapter", "burn-to-pytorch", "--types", types, "--dtype", "f64")
    assert done.status == 0, done.err
    for name, array in load(back).items():
        assert array.dtype == np.float64
        assert np.array_equal(array.astype("f4"), net.state_dict()[name].numpy())


def test_an_adapter_without_layers_is_refused(net, tmp_path, capsys):
    source, target = tmp_path / "net.safetensors", tmp_path / "out.bpk"
    to_burn = ["--adapter", "pytorch-to-burn"]
    bad_json = tmp_path / "bad.json"
    bad_json.write_text("{")
    partial = tmp_path / "partial.json"
    partial.write_text('{"fc": "Linear"}')
    for options, words in (
        (to_burn, "--module or --types"),
        (["--module", "mynet:Net"], "--adapter"),
        ([*to_burn, "--module", "mynet"], "package:Class"),
        ([*to_burn, "--module", "nowhere:Net"], "nowhere"),
        ([*to_burn, "--module", "mynet:Other"], "Other"),
        ([*to_burn, "--module", "mynet:Needy"], "without arguments"),
        ([*to_burn, "--types", tmp_path / "missing.json"], "missing.json"),
        ([*to_burn, "--types", bad_json], "JSON"),
        ([*to_burn, "--types", partial], "norm"),
        ([*to_burn, "--types", partial, "--module", "mynet:Net"], "not both"),
    ):
        assert main(["convert", str(source), str(target), *map(str, options)]) == 2, options
        assert words in capsys.readouterr().err
        assert not target.exists()


def test_packed_layers(net, tmp_path, capsys):
    torch = pytest.importorskip("torch")
    import mynet

    import weightstore.torch

    torch.manual_seed(1)
    packed = mynet.Packed()
    weightstore.torch.save_file(packed.state_dict(), tmp_path / "p.safetensors")
    source, target, back = (str(tmp_path / name) for name in ("p.safetensors", "p.bpk", "b.safetensors"))
    assert main(["convert", source, target, "--adapter", "pytorch-to-burn", "--module", "mynet:Packed"]) == 0
    store = weightstore.BurnpackStore.from_file(tmp_path / "q.bpk").with_to_adapter(weightstore.PyTorchToBurnAdapter())
    store.collect_from(packed)
    assert same(load(tmp_path / "p.bpk"), load(tmp_path / "q.bpk"))
    assert main(["convert", target, back, "--adapter", "burn-to-pytorch", "--module", "mynet:Packed"]) == 2
    types = tmp_path / "types.json"
    types.write_text('{"rnn": "LSTM"}')
    assert main(["convert", target, back, "--adapter", "burn-to-pytorch", "--types", str(types)]) == 2
    assert "LSTM" in capsys.readouterr().err


def test_metadata_and_ids_survive_an_adapter(net, tmp_path):
    source, target = tmp_path / "ids.bpk", tmp_path / "out.bpk"
    weightstore.numpy.save_file(
        {"fc.weight": np.zeros((3, 4), "f4")}, source, metadata={"a": "b"}, param_ids={"fc.weight": 77}
    )
    types = {"fc": "Linear"}
    plan = weightstore.convert(source, target, adapter="pytorch-to-burn", types=types)
    assert plan.tensors[0].shape == (4, 3)
    with weightstore.open(target) as file:
        assert file.metadata["a"] == "b"
        assert file["fc.weight"].param_id == 77
    with pytest.raises(weightstore.InvalidArgument, match="adapter"):
        weightstore.convert(source, target, adapter="sideways", types=types, overwrite=True)
    with pytest.raises(weightstore.InvalidArgument, match="no adapter"):
        weightstore.convert(source, target, types=types, overwrite=True)

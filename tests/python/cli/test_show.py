"""`weightstore show` and `weightstore diff`."""

from __future__ import annotations

import numpy as np
import pytest

import weightstore
import weightstore.numpy
from support.command import TENSORS, run


def test_statistics_of_all_tensors_in_every_format(files):
    for path in files.values():
        done = run("show", path, "--json")
        assert done.status == 0, done.err
        for name, array in TENSORS.items():
            found = done.json[name]
            wide = array.astype(np.float64)
            assert found["count"] == array.size
            assert found["nans"] == np.isnan(wide).sum()
            assert found["infinities"] == np.isinf(wide).sum()
            assert sum(found["histogram"]) == np.isfinite(wide).sum()
        assert done.json["step"]["max"] == 2**62 + 1
        table = run("show", path, "--no-histogram").out.splitlines()
        assert table[0].split() == ["name", "min", "max", "mean", "std", "NaN", "Inf", "zeros"]
        assert table[1].split() == ["model.layers.0.weight", "0", "11", "5.5", "3.45205", "0", "0", "1"]


def test_one_tensor_and_its_parts(files):
    for path in files.values():
        done = run("show", path, "model.layers.0.weight")
        assert done.out.splitlines()[:4] == [
            "model.layers.0.weight: F32 [3, 4], 48 B",
            "[[ 0  1  2  3]",
            " [ 4  5  6  7]",
            " [ 8  9 10 11]]",
        ]
        assert "min 0  max 11  mean 5.5" in done.out
        part = run("show", path, "model.layers.0.weight[1:, ::2]", "--json").json
        assert part["values"] == [[4, 6], [8, 10]]
        assert (part["statistics"]["min"], part["statistics"]["max"], part["shape"]) == (4, 10, [2, 2])
        assert run("show", path, "model.layers.0.weight[-1, 0]", "--json").json["values"] == 8
        assert run("show", path, "model.layers.0.weight[...]", "--json").json["shape"] == [3, 4]
        assert run("show", path, "step", "--json").json["values"] == 2**62 + 1


def test_only_edges_of_large_tensors_are_shown(tmp_path):
    path = tmp_path / "m.safetensors"
    array = np.arange(20 * 30 * 40, dtype=np.int32).reshape(20, 30, 40)
    weightstore.numpy.save_file({"a": array, "a[0]": np.zeros(2)}, path)
    values = run("show", path, "a", "--json").json["values"]
    assert values[3] == "..."
    assert values[0][0] == [0, 1, 2, "...", 37, 38, 39]
    assert values[6][6][-1] == array[-1, -1, -1]
    assert run("show", path, "a[0]", "--json").json["shape"] == [2]  # a tensor of this name
    assert run("show", path, "a[0][1]", "--json").json["shape"] == []
    assert run("show", path, "a[0][0][0]").status == 2


def test_all_types_are_shown(tmp_path, write_raw):
    tensors = {name: (name, [2], bytes(2 * bits // 8)) for name, bits in weightstore._core.DTYPES.items() if bits >= 8}
    tensors["F4"] = ("F4", [2], b"\x21")
    safe = {k: v for k, v in tensors.items() if k not in ("Flex32", "BoolU8", "BoolU32", "QFloat", "C32", "C128")}
    write_raw(safe, path=tmp_path / "all.safetensors")
    for name in safe:
        done = run("show", tmp_path / "all.safetensors", name, "--json")
        assert done.status == 0, name
        assert len(done.json["values"]) == 2
    burn = {k: tensors[k] for k in ("Flex32", "BoolU8", "BoolU32", "F32")}
    write_raw(burn, "burnpack", path=tmp_path / "all.bpk")
    for name in burn:
        assert run("show", tmp_path / "all.bpk", f"{name}[:1]", "--json").json["shape"] == [1]
    write_raw({"six": ("F6_E2M3", [4], b"abc")}, path=tmp_path / "six.safetensors")
    assert "no numbers" in run("show", tmp_path / "six.safetensors", "six").out
    assert "no numbers" in run("show", tmp_path / "six.safetensors").out


def test_quantized_tensors_show_their_numbers(tmp_path):
    store = weightstore.BurnpackStore.from_file(tmp_path / "q.bpk").with_to_adapter(weightstore.quantize("Q8S"))
    store.collect_from({"w": np.linspace(-1, 1, 64, dtype="f4").reshape(8, 8)})
    done = run("show", tmp_path / "q.bpk", "w[0]", "--json")
    assert done.status == 0, done.err
    assert done.json["values"][0] == -1
    assert run("show", tmp_path / "q.bpk", "w").status == 0


@pytest.mark.parametrize("index", ["[9]", "[0,0,0]", "[a]", "[1:2:3:4]", "[", "[]"])
def test_wrong_parts_are_errors(files, index):
    done = run("show", files["safetensors"], f"model.layers.0.weight{index}")
    assert (done.status, done.out) == (2, "")


def test_a_wrong_name_suggests_another(files):
    done = run("show", files["safetensors"], "model.layers.0.weigth")
    assert done.status == 2
    assert "model.layers.0.weight" in done.err


# ---- diff ------------------------------------------------------------------------------------------------------------


def test_the_same_in_every_format(files):
    for path in files.values():
        done = run("diff", files["safetensors"], path, "--values")
        assert done.status == 0, done.out
        assert done.out == "4 tensors have the same types, shapes and values\n"
        assert run("diff", path, files["safetensors"], "--json").json["same"] is True


def test_what_differs(tmp_path, files):
    other = tmp_path / "other.bpk"
    changed = dict(TENSORS)
    changed["model.layers.0.weight"] = changed["model.layers.0.weight"] + np.float32(0.5)
    changed["model.layers.1.weight"] = changed["model.layers.1.weight"].astype(np.float64)
    changed["model.norm.bias"] = changed["model.norm.bias"].reshape(2, 2)
    changed["new"] = changed.pop("step")
    weightstore.numpy.save_file(changed, other)
    done = run("diff", files["safetensors"], other, "--values")
    assert done.status == 1
    assert done.out.splitlines() == [
        "- step",
        "+ new",
        "~ model.layers.0.weight: 12 of 12 values differ, by at most 0.5 (relative 1)",
        "~ model.layers.1.weight: type F32 became F64, values are equal",
        "~ model.norm.bias: shape [4] became [2, 2], values are equal",
        "1 missing, 1 extra, 3 changed, 0 tensors have the same types, shapes and values",
    ]
    headers = run("diff", files["safetensors"], other, "--json")
    assert headers.status == 1
    assert [one["name"] for one in headers.json["changed"]] == ["model.layers.1.weight", "model.norm.bias"]
    assert run("diff", files["safetensors"], tmp_path / "missing.bpk").status == 2

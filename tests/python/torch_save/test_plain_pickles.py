"""What pickle.dump() writes: a dict at the root, and no container of torch.save() around it."""

from __future__ import annotations

import collections
import contextlib
import io
import pickle
import subprocess
import sys
import zipfile
from pathlib import PurePosixPath

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weightstore
from support import canary
from weightstore import FormatError, PytorchError, PytorchStore, StoreError, read_config

PROTOCOLS = [0, 1, 2, 3, 4, 5]
BINARY = [2, 3, 4, 5]  # these begin with a number, so that any root is recognised


class Unknown:
    pass


@pytest.fixture(params=PROTOCOLS)
def protocol(request):
    return request.param


def equal(source, expected: dict[str, np.ndarray]) -> None:
    with weightstore.open(source) as file:
        assert file.format == "pytorch"
        assert sorted(file) == sorted(expected)
        for name, array in expected.items():
            assert file[name].shape == array.shape
            np.testing.assert_array_equal(file[name].numpy(), array)


def test_plain_data(protocol, tmp_path):
    config = {"layers": [1, 2.5, None, True], "name": "größe", "deep": {"a": {"b": b"\0\xff"}}, 7: -(2**40)}
    path = tmp_path / "config.pkl"
    path.write_bytes(pickle.dumps(config, protocol))
    assert read_config(path) == config
    assert read_config(path, "deep.a") == {"b": b"\0\xff"}
    assert read_config(path.read_bytes(), "layers.1") == 2.5
    equal(path, {})


def test_arrays_are_tensors(protocol, tmp_path):
    rng = np.random.default_rng(0)
    state = collections.OrderedDict(
        {
            "conv": {"weight": rng.random((3, 4), np.float32), "bias": np.arange(3, dtype=">f4")},
            "order": np.asfortranarray(rng.integers(0, 9, (2, 3, 4))),
            "empty": np.zeros((0, 5), np.float16),
            "scalar": np.array(2.0),
        }
    )
    path = tmp_path / "model.pkl"
    path.write_bytes(pickle.dumps(state, protocol))
    expected = {f"conv.{name}": array for name, array in state.pop("conv").items()} | state
    equal(path, expected)
    assert sorted(PytorchStore.from_file(path).keys()) == sorted(expected)
    weightstore.convert(path, tmp_path / "model.bpk")
    with weightstore.open(tmp_path / "model.bpk") as file:
        np.testing.assert_array_equal(file["conv.bias"].numpy(), expected["conv.bias"])


LEAVES = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text() | st.binary()
)
KEYS = st.sampled_from(["a", "weight", "größe", "0", "\n"])
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner), max_leaves=10)


@given(st.dictionaries(KEYS, VALUES), st.sampled_from(PROTOCOLS))
def test_any_plain_data(value, protocol):
    assert read_config(pickle.dumps(value, protocol)) == value


def test_tensors_of_torch_are_left_out(protocol):
    """pickle.dump() of a tensor has its bytes in a stream of torch.save() inside the pickle."""
    torch = pytest.importorskip("torch")
    value = {"array": np.ones(2), "tensor": torch.ones(2), "parameter": torch.nn.Parameter(torch.ones(2))}
    with weightstore.open(pickle.dumps(value, protocol)) as file:
        assert list(file) == ["array"]
        assert sorted(left.name for left in file.left_out) == ["parameter", "tensor"]
        assert all("pickle.dump()" in left.reason for left in file.left_out)
        with pytest.raises(StoreError, match="torch.save"):
            file["tensor"]
    with pytest.raises(FormatError, match="torch.save"):
        weightstore.open(pickle.dumps({"tensor": torch.ones(2)}, protocol))


@pytest.mark.parametrize(
    ("root", "named"),
    [([1, 2], "a list"), ((1,), "a tuple"), ({1}, "set"), (3, "a single value"), (np.ones(2), "numpy")],
)
@pytest.mark.parametrize("protocol", BINARY)
def test_a_root_that_is_no_dict(root, named, protocol):
    with pytest.raises(FormatError, match=f"holds '?.*{named}"):
        weightstore.open(pickle.dumps(root, protocol))


@pytest.mark.parametrize("protocol", BINARY)
def test_a_root_of_an_unknown_class(protocol):
    with pytest.raises(FormatError, match=r"one object of '.*Unknown'.*nothing of it was run"):
        weightstore.open(pickle.dumps(Unknown(), protocol))


def test_objects_inside_are_listed(protocol):
    value = {"w": np.ones(2), "object": Unknown(), "path": PurePosixPath("a/b")}
    with weightstore.open(pickle.dumps(value, protocol)) as file:
        assert [(left.name, left.type.rpartition(".")[2]) for left in file.left_out] == [("object", "Unknown")]
    assert read_config(pickle.dumps(value, protocol), "path") == "a/b"
    # The first name that the pickle needs; protocols 0 and 1 create objects by a function.
    named = "Unknown" if protocol >= 2 else r"copy_reg\._reconstructor"
    with pytest.raises(PytorchError, match=named):
        weightstore.open(pickle.dumps(value, protocol), opaque="error")


@pytest.mark.parametrize("trap", [canary.ByReduce, canary.ByState, canary.ByNew])
def test_nothing_is_run(trap, protocol, tmp_path, monkeypatch):
    monkeypatch.setattr(canary, "TRIPPED", tmp_path / "tripped")
    for value in ({"a": trap()}, {"a": [trap()], "w": np.ones(1)}, {trap(): 1}, trap()):
        data = pickle.dumps(value, protocol)
        for read in (weightstore.open, read_config, PytorchStore.from_bytes):
            with contextlib.suppress(StoreError):
                read(data)
    assert not canary.TRIPPED.exists()


def test_the_pickle_of_an_archive():
    torch = pytest.importorskip("torch")
    stream = io.BytesIO()
    torch.save({"w": torch.ones(2)}, stream)
    packed = zipfile.ZipFile(stream)
    (name,) = (name for name in packed.namelist() if name.endswith("data.pkl"))
    with pytest.raises(FormatError, match="data.pkl of an archive"):
        weightstore.open(packed.read(name))


def test_damaged_files(protocol):
    data = pickle.dumps({"w": np.arange(4), "text": "t" * 20}, protocol)
    for end in range(2, len(data)):
        with pytest.raises(StoreError):
            weightstore.open(data[:end])
    for behind in (b"\0", b".", data):
        with pytest.raises(FormatError, match="behind the pickle's STOP"):
            weightstore.open(data + behind)


def test_a_pickle_under_a_name_of_safetensors(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(pickle.dumps({"w": np.ones(2)}))
    with pytest.raises(FormatError, match="safetensors"):
        weightstore.open(path)


def test_parts_that_are_shared_cost_their_size_once():
    """Each level doubles what is reached; the file stays small."""
    value: dict = {"w": np.ones(4)}
    for _ in range(60):
        value = {"a": value, "b": value}
    with pytest.raises(StoreError):
        weightstore.open(pickle.dumps(value))


def test_memory_follows_the_file(tmp_path):
    """Arrays of 32 MB: opening takes a few times the file, in a process of its own."""
    path = tmp_path / "large.pkl"
    path.write_bytes(pickle.dumps({str(i): np.full(1 << 20, i, np.float32) for i in range(8)}))
    code = """
import sys, weightstore
def peak():
    return next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmHWM"))
before = peak()
with weightstore.open(sys.argv[1]) as file:
    assert file["7"].nbytes == 4 << 20
assert peak() - before < 5 * 33 << 20, peak() - before
"""
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"(dp0\nVa\np1\nIx\ns.", r"no number.*byte 11"),
        (b"(dp0\nS'a'\nI1\ns.", r"opcode 0x53.*byte 5"),  # text of Python 2
        (b"(dp0\nVa\ng7\ns.", "memo entry 7"),
        (b"(dp0\nVa\nI1\nsVa\nI2\ns.", "'a' twice"),
        (b"(dp0\ncos\nsystem\n(Vls\ntRI1\ns.", r"os\.system"),
    ],
)
def test_text_that_is_wrong(data, expected):
    with pytest.raises(FormatError, match=expected):
        weightstore.open(data)


def test_text_costs_what_other_pickles_cost():
    """Values that a pickle of protocol 0 shares, and memo entries far away, are refused as in any other."""
    value: dict = {"w": np.ones(4)}
    for _ in range(60):
        value = {"a": value, "b": value}
    with pytest.raises(StoreError):
        weightstore.open(pickle.dumps(value, 0))
    with pytest.raises(StoreError, match="memo entry"):
        weightstore.open(b"(dp4000000000\n.")

"""Snapshots: what is known without reading, and what reading gives."""

from __future__ import annotations

import copy

import ml_dtypes
import numpy as np
import pytest

import weightstore
from weightstore import DeferredTensor, SafetensorsStore, TensorData, TensorSnapshot, collect, errors

torch = pytest.importorskip("torch")


@pytest.fixture
def stored(tmp_path):
    path = tmp_path / "m.safetensors"
    SafetensorsStore.from_file(path).collect_from({"w": np.arange(6, dtype="f4").reshape(2, 3), "b": np.zeros(0, "i8")})
    return SafetensorsStore.from_file(path)


def test_what_is_known(stored):
    snapshot = stored.get_snapshot("w")
    assert (snapshot.full_path, snapshot.name) == ("w", "w")
    assert (snapshot.shape, snapshot.dtype, snapshot.nbytes, snapshot.data_len()) == ((2, 3), "F32", 24, 24)
    assert (snapshot.containers, snapshot.container_path, snapshot.container_type) == ((), "", "Unknown")
    assert (snapshot.module_type, snapshot.param_id) == (None, None)
    assert repr(snapshot) == "<TensorSnapshot 'w' F32 [2, 3]>"


def test_reading_gives_memory_of_its_own(stored):
    snapshot = stored.get_snapshot("w")
    data = snapshot.to_data()
    assert isinstance(data, TensorData)
    assert (data.shape, data.dtype, data.nbytes) == ((2, 3), "F32", 24)
    assert data.bytes == np.arange(6, dtype="f4").tobytes()
    array = data.numpy()
    array[0, 0] = 9
    assert data.torch()[0, 0] == 9
    assert snapshot.numpy()[0, 0] == 0
    tensor = snapshot.torch()
    tensor[0, 0] = 8
    assert snapshot.torch()[0, 0] == 0
    assert stored.get_snapshot("b").numpy().shape == (0,)
    assert stored.get_snapshot("b").torch().dtype == torch.int64
    assert repr(data) == "<TensorData F32 [2, 3]>"


def test_views_when_asked_for(stored):
    snapshot = stored.zero_copy(True).get_snapshot("w")
    array = snapshot.numpy()
    assert not array.flags.writeable
    assert np.shares_memory(array, snapshot.numpy())
    assert not snapshot.to_data().numpy().flags.writeable
    tensor = snapshot.torch()
    tensor[0, 0] = 8
    assert SafetensorsStore.from_file(stored._path).get_snapshot("w").numpy()[0, 0] == 0


def test_the_name_is_assignable():
    (snapshot,) = collect({"encoder.weight": np.ones(3)})
    snapshot.full_path = snapshot.full_path.replace("encoder.", "transformer.encoder.")
    assert snapshot.name == "transformer.encoder.weight"
    snapshot.name = "x"
    assert snapshot.full_path == "x"
    with pytest.raises(TypeError, match="text"):
        snapshot.full_path = None
    other = copy.copy(snapshot)
    other.full_path = "y"
    assert snapshot.full_path == "x"


def test_collected_names_and_containers():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(1))
            self.layers = torch.nn.ModuleList([torch.nn.Linear(10, 20), torch.nn.Linear(20, 5, bias=False)])
            self.norm = torch.nn.BatchNorm1d(5)
            self.none = None
            self.register_buffer("steps", torch.tensor(3))
            self.register_buffer("scratch", torch.zeros(9), persistent=False)

    net = Net()
    found = collect(net)
    assert [snapshot.full_path for snapshot in found] == list(net.state_dict())
    places = {snapshot.full_path: (snapshot.container_path, snapshot.module_type) for snapshot in found}
    assert places["layers.0.weight"] == ("Net.ModuleList.Linear", "Linear")
    assert places["norm.running_mean"] == ("Net.BatchNorm1d", "BatchNorm1d")
    assert places["scale"] == ("Net", "Net")
    assert places["steps"] == ("Net", "Net")
    assert {s.full_path: s.shape for s in found}["layers.0.weight"] == (20, 10)


def test_a_subclass_is_the_layer_it_derives_from():
    class Mine(torch.nn.Linear):
        pass

    class Holder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = torch.nn.MultiheadAttention(4, 2)
            self.mine = Mine(2, 2)
            self.parameters_ = torch.nn.ParameterList([torch.nn.Parameter(torch.zeros(1))])

    types = {snapshot.full_path: (snapshot.container_type, snapshot.module_type) for snapshot in collect(Holder())}
    assert types["mine.weight"] == ("Mine", "Linear")
    assert types["attention.out_proj.weight"][1] == "Linear"
    assert types["parameters_.0"] == ("ParameterList", "Holder")


def test_nested_mappings_lists_and_modules():
    module = {
        "a": {"b": np.ones(2), 3: [np.zeros(1), (np.zeros(2),)]},
        "net": torch.nn.Linear(1, 1, bias=False),
        "none": None,
        "empty": {},
    }
    found = {snapshot.full_path: snapshot for snapshot in collect(module)}
    assert list(found) == ["a.b", "a.3.0", "a.3.1.0", "net.weight"]
    assert found["a.3.1.0"].container_path == "dict.dict.list.tuple"
    assert found["net.weight"].module_type == "Linear"


def test_what_is_no_module():
    with pytest.raises(TypeError, match="PathFilter, not str"):
        collect({}, "encoder")
    with pytest.raises(TypeError, match=r"not a list"):
        collect([np.zeros(1)])
    with pytest.raises(TypeError, match=r"'a\.b' is a str"):
        collect({"a": {"b": "text"}})
    with pytest.raises(TypeError, match=r"1\.5 under 'a'"):
        collect({"a": {1.5: np.zeros(1)}})
    with pytest.raises(errors.InvalidArgument, match=r"'c'.*complex256|complex256"):
        collect({"c": np.zeros(1, "complex256")})
    with pytest.raises(errors.InvalidArgument, match="to_dense"):
        collect({"s": torch.eye(3).to_sparse()})


def test_a_snapshot_shows_the_module_as_it_is_when_read():
    layer = torch.nn.Linear(2, 2)
    snapshot = collect(layer)[0]
    with torch.no_grad():
        layer.weight.fill_(5)
    assert snapshot.numpy().tolist() == [[5, 5], [5, 5]]
    snapshot.numpy()[:] = 0
    snapshot.torch().zero_()
    assert layer.weight[0, 0] == 5


def test_each_reading_runs_the_producer_once():
    calls = []

    def produce():
        calls.append(1)
        return [b"\x01\x00", b"\x02\x00"]

    (snapshot,) = collect({"t": DeferredTensor("I16", (2,), produce)})
    snapshot = snapshot.renamed("u")
    assert calls == []
    assert snapshot.numpy().tolist() == [1, 2]
    assert len(calls) == 1
    assert snapshot.torch().tolist() == [1, 2]
    assert snapshot.to_data().bytes == b"\x01\x00\x02\x00"
    assert len(calls) == 3


def test_producers_that_fail_or_lie():
    def fail():
        raise OSError("unplugged")

    with pytest.raises(OSError, match="unplugged"):
        collect({"t": DeferredTensor("U8", (2,), fail)})[0].to_data()
    with pytest.raises(errors.InvalidArgument, match=r"3 bytes.*needs 2"):
        collect({"t": DeferredTensor("U8", (2,), lambda: b"abc")})[0].to_data()


def test_changes_are_made_when_read():
    matrix = np.arange(6, dtype="f4").reshape(2, 3)
    (snapshot,) = collect({"m": matrix})
    transposed = snapshot.transposed()
    assert (transposed.shape, transposed.dtype) == ((3, 2), "F32")
    assert transposed.numpy().tolist() == matrix.T.tolist()
    assert transposed.transposed()._values is snapshot._values
    half = transposed.cast("F16")
    assert (half.shape, half.dtype, half.nbytes) == ((3, 2), "F16", 12)
    assert half.torch().tolist() == matrix.T.tolist()
    doubled = snapshot.mapped(lambda data: data.numpy() * 2)
    assert doubled.numpy().tolist() == (matrix * 2).tolist()
    flat = snapshot.mapped(lambda data: data.torch().reshape(-1).to(torch.int64), dtype=torch.int64, shape=(6,))
    assert (flat.shape, flat.dtype) == ((6,), "I64")
    assert flat.torch().tolist() == list(range(6))
    with pytest.raises(errors.InvalidArgument, match="needs 24"):
        snapshot.mapped(lambda data: data.numpy()[0]).numpy()


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "f2", "u1", "c8", "?"])
def test_transposing_any_type(dtype):
    matrix = np.array([[1, 2, 3], [4, 5, 6]]).astype(dtype)
    (snapshot,) = collect({"m": matrix})
    assert snapshot.transposed().numpy().tolist() == matrix.T.tolist()
    assert snapshot.transposed().torch().tolist() == matrix.T.tolist()


def test_transposing_what_is_no_matrix():
    (vector,) = collect({"v": np.zeros(3)})
    with pytest.raises(errors.InvalidArgument, match="cannot be transposed"):
        vector.transposed()


FLOATS = {"F32": "float32", "F16": "float16", "BF16": "bfloat16", "F64": "float64", "F8_E4M3": "float8_e4m3fn"}


@pytest.mark.parametrize("after", FLOATS)
@pytest.mark.parametrize("before", FLOATS)
def test_casting_between_floats(before, after):
    values = torch.tensor([0.0, -0.0, 1.0, -2.5, 0.1, 300.0, 1e-3]).to(getattr(torch, FLOATS[before]))
    (snapshot,) = collect({"t": values})
    expected = values.to(getattr(torch, FLOATS[after]))
    made = snapshot.cast(after)
    assert made.dtype == after
    assert torch.equal(made.torch().view(torch.uint8), expected.view(torch.uint8))
    assert (made._values is snapshot._values) == (before == after)


def test_casting_what_is_no_float():
    (whole,) = collect({"t": np.zeros(3, "i4")})
    with pytest.raises(errors.InvalidArgument, match="cannot be cast"):
        whole.cast("F32")


def test_data_made_by_hand():
    data = TensorData((2, 2), np.float32, np.arange(4, dtype="f4").tobytes())
    assert data.torch().tolist() == [[0, 1], [2, 3]]
    assert data.numpy().tolist() == [[0, 1], [2, 3]]
    snapshot = TensorSnapshot.from_data("x", data, containers=["Net", "Linear"])
    assert (snapshot.module_type, snapshot.container_path) == ("Linear", "Net.Linear")
    assert snapshot.transposed().numpy().tolist() == [[0, 2], [1, 3]]
    with pytest.raises(errors.InvalidArgument, match="needs 16"):
        TensorData((2, 2), "F32", b"123")


def test_strides_and_byte_orders():
    arrays = {
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "big": np.arange(3, dtype=">f4"),
        "strided": np.arange(10)[::-3],
        "scalar": np.float64(2.5),
        "bf16": np.arange(3).astype(ml_dtypes.bfloat16),
    }
    for name, snapshot in zip(arrays, collect(arrays), strict=True):
        assert snapshot.to_data().numpy().tolist() == arrays[name].tolist()
    tensors = {"t": torch.arange(6.0).reshape(2, 3).t(), "conj": torch.tensor([1 + 2j]).conj()}
    for name, snapshot in zip(tensors, collect(tensors), strict=True):
        assert snapshot.to_data().numpy().tolist() == tensors[name].resolve_conj().tolist()
        assert snapshot.torch().tolist() == tensors[name].tolist()


def test_tensors_without_values():
    with torch.device("meta"):
        layer = torch.nn.Linear(2, 3)
    snapshot = collect(layer)[0]
    assert (snapshot.shape, snapshot.dtype) == ((3, 2), "F32")
    for read in (snapshot.to_data, snapshot.numpy, snapshot.torch):
        with pytest.raises(errors.NoDataError):
            read()
    with pytest.raises(errors.NoDataError, match="not initialized"):
        collect(torch.nn.LazyLinear(3))


def test_handles_of_an_open_file_are_a_module_too(stored, tmp_path):
    with weightstore.open(tmp_path / "m.safetensors") as file:
        store = SafetensorsStore.from_bytes(None)
        store.collect_from(file)
        part = SafetensorsStore.from_bytes(None)
        part.collect_from({"row": file["w"][1]})
    assert store.get_snapshot("w").numpy().tolist() == [[0, 1, 2], [3, 4, 5]]
    assert part.get_snapshot("row").numpy().tolist() == [3, 4, 5]

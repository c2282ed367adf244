"""BurnpackStore and SafetensorsStore: round trips, files, bytes, direct access."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

import weightstore
from support.stores import KINDS, NAMES, both, saved, t4
from weightstore import (
    BurnpackStore,
    ModuleStore,
    SafetensorsStore,
    errors,
)

pytestmark = pytest.mark.usefixtures("both_ways")


@both
def test_bytes_round_trip(kind):
    target = t4(zero=True)
    result = saved(t4(), kind).apply_to(target)
    assert result.applied == ["weight", "bias", "nested.gamma", "nested.beta"]
    assert not result.errors
    assert target["weight"].tolist() == [[1, 2], [3, 4]]
    assert target["nested"]["gamma"].tolist() == [1, 1]


@both
def test_file_round_trip_and_direct_access(kind, tmp_path):
    path = tmp_path / "model.x"
    store = kind.from_file(path)
    assert isinstance(store, ModuleStore)
    store.collect_from(t4())
    assert store.keys() == NAMES
    assert list(store.get_all_snapshots()) == NAMES
    assert store.get_all_snapshots() is store.get_all_snapshots()
    assert store.get_snapshot("weight").shape == (2, 2)
    assert store.get_snapshot("weight").numpy().tolist() == [[1, 2], [3, 4]]
    assert store.get_snapshot("nested.gamma").shape == (2,)
    assert store.get_snapshot("unknown") is None
    assert kind.__name__ in repr(store)
    assert kind.from_file(str(path)).apply_to(t4(zero=True)).is_success()


@both
def test_names_are_sorted_by_their_bytes(kind):
    names = ["a.10", "a.2", "ab", "b", "ä", "Z", "😀", "\uffee"]
    store = saved({name: np.zeros(1) for name in names}, kind)
    assert store.keys() == sorted(names, key=lambda name: name.encode())


@both
def test_a_second_save_is_seen(kind, tmp_path):
    for store in (kind.from_bytes(None), kind.from_file(tmp_path / "m.x").overwrite(True)):
        store.collect_from(t4())
        assert store.get_snapshot("weight").numpy().tolist() == [[1, 2], [3, 4]]
        old = store.get_snapshot("weight")
        module = t4()
        module["weight"] *= 10
        store.collect_from(module)
        assert store.get_snapshot("weight").numpy().tolist() == [[10, 20], [30, 40]]
        assert old.numpy().tolist() == [[1, 2], [3, 4]]


@both
def test_the_file_is_one_any_reader_reads(kind, tmp_path):
    path = tmp_path / "m.x"
    kind.from_file(path).collect_from(t4())
    with weightstore.open(path, verify="off") as file:
        assert file.format == {BurnpackStore: "burnpack", SafetensorsStore: "safetensors"}[kind]
        assert file["nested.beta"].numpy().tolist() == [0, 0]
    if kind is SafetensorsStore:
        safetensors = pytest.importorskip("safetensors.numpy")
        assert sorted(safetensors.load_file(path)) == NAMES


@both
def test_same_input_same_bytes(kind):
    assert saved(t4(), kind).get_bytes() == saved(t4(), kind).get_bytes()


def test_bytes_of_a_known_file():
    store = BurnpackStore.from_bytes(None).clear_metadata()
    store.collect_from({})
    # The smallest file there is.
    assert hashlib.sha256(store.get_bytes()).hexdigest()[:16] == "d51cafc1a9901c1d"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("test_model", "test_model.bpk"),
        ("model.bpk", "model.bpk"),
        ("model.mpk", "model.mpk"),
        ("model.v1.5", "model.v1.5"),
        (".hidden", ".hidden.bpk"),
        ("model.", "model."),
        ("dir.d/model", "dir.d/model.bpk"),
    ],
)
def test_automatic_extension(tmp_path, name, expected):
    (tmp_path / "dir.d").mkdir()
    BurnpackStore.from_file(tmp_path / name).collect_from(t4())
    assert (tmp_path / expected).is_file()
    assert BurnpackStore.from_file(tmp_path / name).keys() == NAMES


def test_extensions_of_other_stores(tmp_path):
    BurnpackStore.from_file(tmp_path / "plain").auto_extension(False).collect_from(t4())
    SafetensorsStore.from_file(tmp_path / "exact").collect_from(t4())
    SafetensorsStore.from_file(tmp_path / "more").auto_extension(True).collect_from(t4())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["exact", "more.safetensors", "plain"]


def test_the_store_not_the_ending_decides_the_format(tmp_path):
    SafetensorsStore.from_file(tmp_path / "odd.bpk").collect_from(t4())
    with weightstore.open(tmp_path / "odd.bpk") as file:
        assert file.format == "safetensors"


def test_shards(tmp_path):
    module = {f"w{i}": np.full(1000, i, "f4") for i in range(5)}
    SafetensorsStore.from_file(tmp_path / "model.safetensors").max_shard_size("9KB").collect_from(module)
    index = tmp_path / "model.safetensors.index.json"
    assert len(list(tmp_path.glob("model-0000*-of-00003.safetensors"))) == 3
    target = {name: np.zeros(1000, "f4") for name in module}
    assert SafetensorsStore.from_file(index).apply_to(target).missing == []
    assert target["w4"][0] == 4
    SafetensorsStore.from_file(tmp_path / "other.safetensors.index.json").collect_from(module)
    assert SafetensorsStore.from_file(tmp_path / "other.safetensors.index.json").keys() == list(module)


@both
def test_checksums_are_written_and_compared(kind, tmp_path):
    path = tmp_path / "m.x"
    kind.from_file(path).checksums(True).durable(False).collect_from(t4())
    with weightstore.open(path) as file:
        assert file.verify() == 4
    assert kind.from_file(path).verify("full").apply_to(t4(zero=True)).is_success()


@both
def test_bytes_that_are_not_there(kind, tmp_path):
    with pytest.raises(errors.InvalidArgument, match="nothing was saved"):
        kind.from_bytes(None).get_bytes()
    with pytest.raises(errors.InvalidArgument, match="empty"):
        kind.from_bytes().keys()
    with pytest.raises(errors.InvalidArgument, match="over a file"):
        kind.from_file(tmp_path / "x").get_bytes()
    data = saved(t4(), kind).get_bytes()
    assert kind.from_bytes(bytearray(data)).get_bytes() == data


@both
def test_static_bytes(kind):
    data = saved(t4(), kind).get_bytes()
    store = kind.from_static(data)
    array = store.get_snapshot("weight").numpy()
    assert np.shares_memory(array, np.frombuffer(data, "u1"))
    assert not np.shares_memory(kind.from_bytes(data).get_snapshot("weight").numpy(), np.frombuffer(data, "u1"))
    assert store.apply_to(t4(zero=True)).is_success()


@both
def test_saving_streams_one_tensor_at_a_time(kind, tmp_path):
    class Chunk:
        """Counts the values that are alive."""

        alive = most = 0

        def __init__(self):
            self.data = bytearray(1 << 20)
            Chunk.alive += 1
            Chunk.most = max(Chunk.most, Chunk.alive)

        def __del__(self):
            Chunk.alive -= 1

    class Kept(np.ndarray):
        pass

    def produce():
        chunk = Chunk()
        array = np.frombuffer(chunk.data, "u1").view(Kept)
        array.chunk = chunk
        return array

    module = {f"t{i}": weightstore.DeferredTensor("U8", (1 << 20,), produce) for i in range(6)}
    store = kind.from_file(tmp_path / "m.x").with_key_remapping("t", "u")
    assert Chunk.most == 0
    store.collect_from(module)
    assert Chunk.most == 1
    assert Chunk.alive == 0
    assert len(store.keys()) == 6


@both
def test_snapshots_of_a_file_are_converted_without_a_module(kind, tmp_path):
    (other,) = set(KINDS) - {kind}
    source = kind.from_file(tmp_path / "source.x").metadata("note", "kept?")
    source.collect_from(t4())
    target = other.from_file(tmp_path / "target.x")
    target.collect_from(source.get_all_snapshots())
    assert target.keys() == NAMES
    assert target.apply_to(t4(zero=True)).is_success()
    merged = other.from_bytes(None)
    merged.collect_from(
        [*source.get_all_snapshots().values(), *saved({"bias": np.zeros(7)}, kind).get_all_snapshots().values()]
    )
    assert merged.get_snapshot("bias").shape == (7,)


def test_types_change_names_between_formats(write_raw):
    data = write_raw({"a": ("Flex32", (1,), bytes(4)), "b": ("BoolU8", (1,), b"\1")}, "burnpack", burn="0.21")
    target = SafetensorsStore.from_bytes(None)
    target.collect_from(BurnpackStore.from_bytes(data).get_all_snapshots())
    assert [snapshot.dtype for snapshot in target.get_all_snapshots().values()] == ["F32", "BOOL"]


CORPUS = Path(__file__).parents[2] / "fuzz" / "corpus" / "fuzz_burnpack"


@pytest.mark.parametrize("name", ["quant_019", "quant_020", "quant_020_block", "quant_022", "quant_022_two_levels"])
def test_quantized_tensors_pass_through(name, tmp_path):
    source = BurnpackStore.from_bytes((CORPUS / name).read_bytes())
    target = BurnpackStore.from_file(tmp_path / "copy.bpk").with_key_remapping("^", "copy.")
    target.collect_from(source.get_all_snapshots())
    with weightstore.open((CORPUS / name).read_bytes()) as before, weightstore.open(tmp_path / "copy.bpk") as after:
        assert any(tensor.dtype == "QFloat" for tensor in before.values())
        for path in before:
            one, other = before[path], after[f"copy.{path}"]
            assert (one.dtype, one.shape, one.bytes()) == (other.dtype, other.shape, other.bytes())
            assert one.scheme == other.scheme
    (snapshot, *_) = (s for s in source.get_all_snapshots().values() if s.dtype == "QFloat")
    assert snapshot.to_data().bytes == weightstore.open((CORPUS / name).read_bytes())[snapshot.full_path].bytes()
    with pytest.raises(TypeError, match="QFloat"):
        snapshot.numpy()
    with pytest.raises(errors.SafetensorsError, match="QFloat"):
        SafetensorsStore.from_bytes(None).collect_from(source.get_all_snapshots())
    with pytest.raises(errors.ValidationError, match="QFloat"):
        source.allow_partial(True).apply_to({snapshot.full_path: np.zeros(snapshot.shape, "f4")})


def test_booleans_for_a_release_of_burn(write_raw):
    source = write_raw({"b": ("BoolU32", (1,), b"\1\0\0\0")}, "burnpack", burn="0.21")
    copy = BurnpackStore.from_bytes(None)
    copy.collect_from(BurnpackStore.from_bytes(source).get_all_snapshots())
    assert copy.get_snapshot("b").dtype == "BoolU32"
    with pytest.raises(errors.BurnpackError, match=r"0\.20|BoolU32"):
        copy.for_burn("0.20").collect_from(BurnpackStore.from_bytes(source).get_all_snapshots())


def test_a_wrong_size_of_shards_raises_at_once(tmp_path):
    store = SafetensorsStore.from_file(tmp_path / "x.safetensors")
    for size in ("lots", "5 parsecs", 0, -1):
        with pytest.raises(errors.SafetensorsError, match="size"):
            store.max_shard_size(size)
    store.max_shard_size("9KB").max_shard_size(9000)

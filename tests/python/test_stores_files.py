"""BurnpackStore and SafetensorsStore: files, bytes, options, direct access."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

import weightstore
from weightstore import (
    BurnpackStore,
    KeyRemapper,
    ModuleStore,
    PathFilter,
    PytorchStore,
    SafetensorsStore,
    errors,
)

KINDS = [BurnpackStore, SafetensorsStore]
both = pytest.mark.parametrize("kind", KINDS)


def t4(zero=False):
    module = {
        "weight": np.array([[1, 2], [3, 4]], "f4"),
        "bias": np.array([0.1, 0.2], "f4"),
        "nested": {"gamma": np.ones(2, "f4"), "beta": np.zeros(2, "f4")},
    }
    if zero:
        for array in (module["weight"], module["bias"], module["nested"]["gamma"]):
            array[...] = 0
    return module


NAMES = ["bias", "nested.beta", "nested.gamma", "weight"]


def saved(kind, module=None):
    store = kind.from_bytes(None)
    store.collect_from(t4() if module is None else module)
    return kind.from_bytes(store.get_bytes())


# ---- round trips -----------------------------------------------------------------------------------------------------


@both
def test_bytes_round_trip(kind):
    target = t4(zero=True)
    result = saved(kind).apply_to(target)
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
    store = saved(kind, {name: np.zeros(1) for name in names})
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
    assert saved(kind).get_bytes() == saved(kind).get_bytes()


def test_bytes_of_a_known_file():
    store = BurnpackStore.from_bytes(None).clear_metadata()
    store.collect_from({})
    # The smallest file there is.
    assert hashlib.sha256(store.get_bytes()).hexdigest()[:16] == "d51cafc1a9901c1d"


# ---- filtering -------------------------------------------------------------------------------------------------------


@both
def test_filters_on_load(kind):
    def load(store):
        target = t4(zero=True)
        return target, store.apply_to(target)

    target, result = load(saved(kind).with_regex("^(weight|bias)$"))
    assert (len(result.applied), result.skipped) == (2, ["nested.beta", "nested.gamma"])
    assert target["nested"]["gamma"].tolist() == [0, 0]
    _, result = load(saved(kind).with_full_path("weight").with_full_paths(["nested.gamma"]))
    assert result.applied == ["weight", "nested.gamma"]
    _, result = load(saved(kind).with_regex("^nothing").match_all())
    assert len(result.applied) == 4
    _, result = load(saved(kind).with_filter(PathFilter().with_regex("bias")))
    assert result.applied == ["bias"]
    _, result = load(saved(kind).with_filter(PathFilter()))
    assert (result.applied, len(result.skipped)) == ([], 4)
    _, result = load(saved(kind).with_predicates([lambda path, container: container == "dict.dict"]))
    assert result.applied == ["nested.gamma", "nested.beta"]
    _, result = load(saved(kind).with_regexes(["^w", "^b"]))
    assert result.applied == ["weight", "bias"]


@both
def test_filters_on_save(kind):
    store = kind.from_bytes(None).with_regex(r"^nested\.").with_full_path("bias")
    store.collect_from(t4())
    assert store.keys() == ["bias", "nested.beta", "nested.gamma"]
    store = kind.from_bytes(None).with_predicate(lambda path, container: container == "dict" and "w" in path)
    store.collect_from(t4())
    assert store.keys() == ["weight"]


@both
def test_filters_are_copied_and_do_not_touch_direct_access(kind):
    chosen = PathFilter().with_regex("^weight$")
    store = saved(kind).with_filter(chosen)
    chosen.match_all()
    assert store.apply_to(t4(zero=True)).applied == ["weight"]
    assert store.keys() == NAMES


def test_filters_of_containers_on_both_ways():
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.LayerNorm(2))
    store = SafetensorsStore.from_bytes(None).with_predicate(lambda _, container: container.split(".")[-1] == "Linear")
    store.collect_from(model)
    assert store.keys() == ["0.bias", "0.weight"]
    assert store.allow_partial(True).apply_to(model).missing == ["1.bias", "1.weight"]


# ---- renaming --------------------------------------------------------------------------------------------------------


@both
def test_renaming_on_load(kind):
    rules = [(r"nested\.gamma", "nested.new_gamma"), (r"nested\.beta", "nested.new_beta")]
    store = saved(kind).allow_partial(True)
    for rule in rules:
        store.with_key_remapping(*rule)
    result = store.apply_to(t4(zero=True))
    assert (len(result.applied), len(result.unused), len(result.missing)) == (2, 2, 2)
    assert store.keys() == ["bias", "nested.new_beta", "nested.new_gamma", "weight"]
    store = saved(kind).allow_partial(True).with_remap_pattern(r"^nested\.", "sub_module.")
    assert store.apply_to(t4(zero=True)).unused == ["sub_module.beta", "sub_module.gamma"]
    assert saved(kind).remap(KeyRemapper().add_pattern("^", "m.")).keys()[0] == "m.bias"


@both
def test_renaming_on_save(kind):
    store = kind.from_bytes(None).with_key_remapping(r"^nested\.(\w+)", "inner_$1").with_key_remapping("inner_", "in.")
    store.collect_from(t4())
    assert kind.from_bytes(store.get_bytes()).keys() == ["bias", "in.beta", "in.gamma", "weight"]


@both
def test_collisions_name_both_sources(kind):
    for store in (saved(kind), kind.from_bytes(None)):
        store.with_key_remapping("^(nested.gamma|weight)$", "same")
        with pytest.raises(
            errors.InvalidArgument, match=r"'(nested\.gamma|weight)' and '(nested\.gamma|weight)'.*'same'"
        ):
            store.collect_from(t4()) if store._data is None else store.keys()
    store = kind.from_bytes(None).skip_enum_variants(True)
    with pytest.raises(errors.StoreError, match=r"'a\.One\.w' and 'a\.Two\.w'|'a\.w'"):
        store.collect_from({"a": {"One": {"w": np.zeros(1)}, "Two": {"w": np.zeros(1)}}})


@both
def test_options_changed_after_the_file_was_read_count(kind):
    store = saved(kind)
    assert "weight" in store.keys()  # noqa: SIM118
    assert "renamed" in store.with_key_remapping("^weight$", "renamed").keys()  # noqa: SIM118


@both
def test_a_top_level_key(kind):
    store = kind.from_bytes(None).with_top_level_key("model.state")
    store.collect_from(t4())
    data = store.get_bytes()
    assert kind.from_bytes(data).keys()[0] == "model.state.bias"
    assert kind.from_bytes(data).with_top_level_key("model").keys()[0] == "state.bias"
    assert kind.from_bytes(data).with_top_level_key("model.state").apply_to(t4(zero=True)).missing == []
    assert store.keys() == NAMES
    with pytest.raises(errors.TensorNotFound, match="below 'stat'; names begin with: model"):
        kind.from_bytes(data).with_top_level_key("stat").keys()


@both
def test_indices_without_gaps(kind):
    module = {f"fc.{i}.weight": np.full(2, i) for i in (0, 2, 4)}
    plain = {f"fc.{i}.weight": np.zeros(2, "i8") for i in range(3)}
    store = saved(kind, module)
    assert store.keys() == list(module)
    with pytest.raises(errors.TensorNotFound):
        store.apply_to(plain)
    assert store.map_indices_contiguous(True).keys() == list(plain)
    assert store.apply_to(plain).missing == []
    assert plain["fc.2.weight"].tolist() == [4, 4]

    own = {name: np.zeros(2, "i8") for name in module}
    with pytest.raises(errors.TensorNotFound):
        store.apply_to(own)
    store.map_indices_contiguous("auto")
    assert store.keys() == list(module)
    for target in (own, {name: np.zeros(2, "i8") for name in plain}):
        result = store.apply_to(target)
        assert (result.missing, result.unused) == ([], [])
        assert [array[0] for array in target.values()] == [0, 2, 4]
    with pytest.raises(errors.InvalidArgument, match="True, False or 'auto'"):
        store.map_indices_contiguous("sometimes")


@both
def test_enum_variants(kind):
    with_variant = {"feature": {"BaseConv": {"weight": np.ones(2)}}, "Head": {"weight": np.ones(2)}}
    without = {"feature": {"weight": np.zeros(2)}, "Head": {"weight": np.zeros(2)}}
    store = saved(kind, with_variant)
    with pytest.raises(errors.TensorNotFound, match="skip_enum_variants"):
        store.apply_to(without)
    assert store.skip_enum_variants(True).apply_to(without).missing == []
    assert without["feature"]["weight"].tolist() == [1, 1]
    plain = kind.from_bytes(None).skip_enum_variants(True)
    plain.collect_from(with_variant)
    assert plain.keys() == ["Head.weight", "feature.weight"]
    assert plain.apply_to(with_variant).unused == []
    assert plain.skip_enum_variants(False).allow_partial(True).apply_to(with_variant).missing == [
        "feature.BaseConv.weight"
    ]


# ---- metadata and scalars --------------------------------------------------------------------------------------------


def test_metadata():
    assert saved(BurnpackStore).get_metadata() == {"format": "burnpack", "producer": "weightstore"}
    assert saved(SafetensorsStore).get_metadata() == {"format": "pt", "producer": "weightstore"}


@both
def test_metadata_is_added_overridden_and_cleared(kind):
    store = kind.from_bytes(None).metadata("version", "1.0").metadata("producer", "me").metadata("producer", "you")
    store.collect_from(t4())
    assert store.get_metadata()["version"] == "1.0"
    assert store.get_metadata()["producer"] == "you"
    assert "format" in store.get_metadata()
    store.clear_metadata().collect_from(t4())
    assert store.get_metadata() == {}
    store.clear_metadata().metadata("a", "").metadata("", "b").collect_from(t4())
    assert store.get_metadata() == {"a": "", "": "b"}
    with pytest.raises(TypeError, match="str to str"):
        store.metadata("epoch", 3)


def test_scalars():
    store = BurnpackStore.from_bytes(None).scalar("step", 42).scalar("rate", 0.001).scalar("done", True).scalar("o", -3)
    store.collect_from(t4())
    assert store.get_scalars() == {"step": 42, "rate": 0.001, "done": True, "o": -3}
    assert store.get_scalars()["done"] is True
    assert saved(BurnpackStore).get_scalars() == {}
    with pytest.raises(TypeError, match="scalar"):
        store.scalar("name", "text")
    assert not hasattr(SafetensorsStore, "scalar")
    with pytest.raises(errors.BurnpackError, match="64 bits"):
        BurnpackStore.from_bytes(None).scalar("x", 1 << 70).collect_from({})


# ---- files -----------------------------------------------------------------------------------------------------------


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
    assert kind.from_file(path).checksums(True).apply_to(t4(zero=True)).is_success()


@both
def test_bytes_that_are_not_there(kind, tmp_path):
    with pytest.raises(errors.InvalidArgument, match="nothing was saved"):
        kind.from_bytes(None).get_bytes()
    with pytest.raises(errors.InvalidArgument, match="empty"):
        kind.from_bytes().keys()
    with pytest.raises(errors.InvalidArgument, match="over a file"):
        kind.from_file(tmp_path / "x").get_bytes()
    data = saved(kind).get_bytes()
    assert kind.from_bytes(bytearray(data)).get_bytes() == data


@both
def test_static_bytes(kind):
    data = saved(kind).get_bytes()
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
        [*source.get_all_snapshots().values(), *saved(kind, {"bias": np.zeros(7)}).get_all_snapshots().values()]
    )
    assert merged.get_snapshot("bias").shape == (7,)


def test_types_change_names_between_formats(write_raw):
    data = write_raw({"a": ("Flex32", (1,), bytes(4)), "b": ("BoolU8", (1,), b"\1")}, "burnpack", burn="0.21")
    target = SafetensorsStore.from_bytes(None)
    target.collect_from(BurnpackStore.from_bytes(data).get_all_snapshots())
    assert [snapshot.dtype for snapshot in target.get_all_snapshots().values()] == ["F32", "BOOL"]


CORPUS = Path(__file__).parents[1] / "fuzz" / "corpus" / "fuzz_burnpack"


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
    plain = {"b": np.array([True])}
    old, new = BurnpackStore.from_bytes(None), BurnpackStore.from_bytes(None).for_burn("0.21")
    old.collect_from(plain)
    new.collect_from(plain)
    assert b"dtypedBool" in old.get_bytes()
    assert b"dtype\xa1dBoolfNative" in new.get_bytes()
    with pytest.raises(errors.InvalidArgument, match=r"'0\.22'"):
        new.for_burn("1.0")


# ---- wrong arguments -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*KINDS, PytorchStore])
def test_wrong_arguments_raise_at_once(kind):
    store = kind.from_bytes(b"")
    place = {BurnpackStore: errors.BurnpackError, SafetensorsStore: errors.SafetensorsError}.get(
        kind, errors.PytorchError
    )
    for call in (
        lambda: store.with_regex("("),
        lambda: store.with_regexes(["("]),
        lambda: store.with_key_remapping("(", ""),
        lambda: store.dtype_policy("no"),
        lambda: store.map_indices_contiguous("no"),
    ):
        with pytest.raises(errors.InvalidArgument) as caught:
            call()
        assert isinstance(caught.value, place)
        assert isinstance(caught.value, ValueError)
    for call in (
        lambda: store.with_filter("x"),
        lambda: store.remap("x"),
        lambda: store.with_from_adapter("x"),
        lambda: store.with_top_level_key(3),
        lambda: kind.from_file(b"bytes"),
        lambda: kind.from_file(3),
        lambda: kind.from_bytes("path"),
        lambda: kind.from_bytes(Path("path")),
    ):
        with pytest.raises(TypeError):
            call()

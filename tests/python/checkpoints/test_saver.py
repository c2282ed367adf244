"""weightstore.Saver, Loader and CheckpointReader over torch.classes.store."""

from __future__ import annotations

import inspect
import json
import threading
from pathlib import Path

import pytest

import weightstore
from support.torch_classes import torch

pytest.importorskip("safetensors")
import safetensors
import safetensors.torch

LAYOUTS = ["plain", "recis"]


def table(name="user", dim=4, shard=0, shard_num=1, dtype=torch.float32):
    begin, end = 65536 * shard // shard_num, 65536 * (shard + 1) // shard_num
    return torch.classes.store.HashTable(name, [dim], dtype, begin, end, 65536, 4096, [])


def filled(ids, **options):
    made = table(**options)
    begin, end, size = made.slice()
    own = ids[(ids % size >= begin) & (ids % size < end)]
    dim = options.get("dim", 4)
    made.insert(own, (own[:, None] * 10 + torch.arange(dim)).to(options.get("dtype", torch.float32)))
    return made


def rows(made):
    ids = made.ids().sort().values
    return ids, made.lookup(ids, False)[1]


def tensors_in(path: Path) -> dict:
    found = {}
    for file in path.glob("*.safetensors"):
        found.update(safetensors.torch.load_file(file))
    return found


def test_shard_0_hears_what_went_wrong_before_a_shard_saved(tmp_path):
    def refuse(blocks):
        raise ValueError("this one not")

    with pytest.raises(ValueError, match="this one not"):
        weightstore.Saver(1, 2, 2, tmp_path, attempt="a", run="r", filter_func=refuse).save()
    with pytest.raises(OSError, match="shard 1 failed: ValueError: this one not"):
        weightstore.Saver(0, 2, 2, tmp_path, attempt="a", run="r").save()


def test_a_filter_may_be_a_generator(tmp_path):
    dense = {"w": torch.ones(2), "v": torch.ones(3)}

    def only_w(blocks):
        return (block for block in blocks if block.tensor_name() == "w")

    weightstore.Saver(path=tmp_path, tensors=dense, filter_func=only_w).save()
    assert weightstore.CheckpointReader(tmp_path).tensor_names() == ["w"]


def test_a_timeout_is_a_number_of_seconds(tmp_path):
    for timeout in (float("nan"), -1):
        with pytest.raises(ValueError, match="timeout is"):
            weightstore.Saver(path=tmp_path, timeout=timeout)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_round_trip(tmp_path, layout):
    ids = torch.arange(1000) * 7919
    dense = {"w": torch.randn(3, 4), "step": torch.tensor(7), "none": torch.empty(0, 2)}
    weightstore.Saver(path=tmp_path, hashtables={"user": filled(ids)}, tensors=dense, layout=layout).save()
    user = table()
    loaded = {name: torch.zeros_like(value) for name, value in dense.items()}
    weightstore.Loader(tmp_path, {"user": user}, loaded).load()
    for name, value in dense.items():
        assert torch.equal(loaded[name], value)
    found_ids, found_rows = rows(user)
    assert torch.equal(found_ids, ids)
    assert torch.equal(found_rows, (ids[:, None] * 10 + torch.arange(4)).float())


@pytest.mark.parametrize("parallel", [1, 2, 4, 8])
def test_the_facts_of_recis(tmp_path, parallel):
    """What its own test asserts."""
    dense = {
        "one": torch.randn(2, 2),
        "two": torch.randn(3, 3),
        "three": torch.randn(100, 1),
        "four": torch.randn(1, 10),
        "five": torch.randn(1, 1),
        "six": torch.randn(1, 1),
    }
    ids = torch.arange(5000)
    name = f"hashtable{parallel}"
    weightstore.Saver(
        0, 1, parallel, str(tmp_path), {name: filled(ids, name=name, dim=8)}, dense, layout="recis"
    ).save()
    keys = json.loads((tmp_path / "tensorkey.json").read_text())
    description = json.loads((tmp_path / "torch_rank_weights_embs_table_multi_shard.json").read_text())
    index = json.loads((tmp_path / "index").read_text())
    assert len(keys) == 2
    assert len(description) == 8
    assert keys.keys() <= description.keys()
    for key, entry in description.items():
        if "embedding" in key:
            assert entry["is_hashmap"] is True
            assert "id" in entry["hashmap_key"]
            assert {"dimension", "dtype", "name", "dense", "hashmap_key_dtype", "hashmap_value"} <= entry.keys()
        elif entry["dense"]:
            assert entry["dimension"] == 0
            assert entry["is_hashmap"] is False
            assert {"name", "dtype"} <= entry.keys()
    assert len(index["block_index"]) == len(description)
    assert all(0 <= number < len(index["file_index"]) for number in index["block_index"].values())
    assert {path.name for path in tmp_path.glob("*.safetensors")} == index["file_index"].keys()
    found = tensors_in(tmp_path)
    for key, value in dense.items():
        assert torch.equal(found[f"{key}^ "], value)
    order = found[f"{name}.id/part_0_1"].argsort()
    assert torch.equal(found[f"{name}.id/part_0_1"][order], ids)
    assert torch.equal(found[f"{name}.embedding/part_0_1"][order], (ids[:, None] * 10 + torch.arange(8)).float())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_types_and_strides(tmp_path, layout):
    base = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    dense = {
        "transposed": base.T,
        "strided": base[:, ::2],
        "expanded": torch.ones(1).expand(5),
        "conjugated": torch.randn(3, dtype=torch.complex64).conj(),
        "negated": torch.randn(3, dtype=torch.complex64).conj().imag,
        "bool": torch.tensor([True, False]),
        "bf16": torch.randn(3).bfloat16(),
        "f16": torch.randn(3).half(),
        "f64": torch.randn(3).double(),
        "fp8": torch.randn(3).to(torch.float8_e4m3fn),
        "u16": torch.tensor([1, 65535], dtype=torch.uint16),
        "u64": torch.tensor([1, 2], dtype=torch.uint64),
        "i8": torch.tensor([-1], dtype=torch.int8),
        "scalar": torch.tensor(2.5),
        "grad": torch.nn.Parameter(torch.randn(2)),
    }
    if layout == "recis":
        for name in ("conjugated", "fp8", "u16", "u64"):
            refused = {name: dense.pop(name)}
            with pytest.raises(weightstore.CheckpointError, match=f"'{name}': RecIS cannot read elements of"):
                weightstore.Saver(path=tmp_path / "never", tensors=refused, layout=layout).save()
        assert not (tmp_path / "never").exists()
    weightstore.Saver(path=tmp_path, tensors=list(dense.items()), layout=layout).save()
    reader = weightstore.CheckpointReader(tmp_path)
    assert reader.tensor_names() == sorted(dense)
    for name, value in dense.items():
        found = reader.read_tensor(name)
        assert found.dtype == value.dtype == reader.tensor_dtype(name)
        assert reader.tensor_shape(name) == list(value.shape)
        assert (
            found.contiguous()
            .view(torch.uint8)
            .equal(value.detach().resolve_conj().resolve_neg().contiguous().view(torch.uint8))
            if value.dim()
            else found.equal(value)
        )
    suffix = "^ " if layout == "recis" else ""
    assert torch.equal(tensors_in(tmp_path)["bool" + suffix], dense["bool"])
    target = torch.zeros(4, 3).T
    weightstore.Loader(tmp_path, tensors={"strided": torch.zeros(3, 2), "transposed": target.T}, strict=False).load()
    assert torch.equal(target.T, base.T)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_two_shards_and_three(tmp_path, layout):
    ids = torch.arange(3000) * 31
    errors = []

    def save(shard):
        try:
            saver = weightstore.Saver(
                shard,
                2,
                2,
                tmp_path,
                {"user": filled(ids, shard=shard, shard_num=2)},
                {"w": torch.ones(2)},
                layout=layout,
                timeout=30,
            )
            saver.save()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=save, args=(shard,)) for shard in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    found = []
    for shard in range(3):
        part = table(shard=shard, shard_num=3)
        weightstore.Loader(tmp_path, {"user": part}, {"w": torch.zeros(2)}).load()
        found.append(part.ids())
    assert torch.equal(torch.cat(found).sort().values, ids)


def test_filters(tmp_path):
    seen = []

    def without_large(blocks):
        seen.extend((b.tensor_name(), b.slice_info(), b.kind(), b.nbytes(), b.shape()) for b in blocks)
        return [block for block in blocks if block.nbytes() < 100]

    dense = {"small": torch.ones(2), "large": torch.ones(100)}
    weightstore.Saver(0, 1, 8, tmp_path, {"user": filled(torch.arange(2))}, dense, without_large).save()
    assert seen[0] == ("user@id", "00000@65536@65536", "ids", 16, [2])
    assert seen[3] == ("large", " ", "dense", 400, [100])
    assert weightstore.CheckpointReader(tmp_path).tensor_names() == ["small", "user@embedding", "user@id"]
    user = table()
    weightstore.Loader(
        tmp_path, {"user": user}, {"x": torch.zeros(2)}, filter_func=lambda info: {**info, "x": {"small": []}}
    ).load()
    assert user.size() == 2


def test_progress_and_cancel(tmp_path):
    seen = []
    dense = {"w": torch.zeros(1 << 20)}
    weightstore.Saver(path=tmp_path, tensors=dense, progress=lambda *call: seen.append(call)).save()
    assert seen[-1][:2] == (4 << 20, 4 << 20)


def test_errors_are_of_our_kinds(tmp_path):
    with pytest.raises(weightstore.CheckpointError) as caught:
        weightstore.CheckpointReader(tmp_path)
    assert isinstance(caught.value, FileNotFoundError)
    with pytest.raises(weightstore.InvalidArgument, match="shard_index"):
        weightstore.Saver(2, 2)
    with pytest.raises(weightstore.InvalidArgument, match="neither 'plain' nor 'recis'"):
        weightstore.Saver(path=tmp_path, layout="flat")
    with pytest.raises(TimeoutError, match="shard 1: no record"):
        weightstore.Saver(0, 2, 1, tmp_path, tensors={"w": torch.ones(1)}, attempt=1, timeout=0.05).save()
    weightstore.Saver(path=tmp_path / "r", tensors={"w": torch.ones(1)}, layout="recis").save()
    with pytest.raises(weightstore.ConflictError, match="overwriting"):
        weightstore.Saver(path=tmp_path / "r", tensors={"w": torch.ones(1)}, layout="recis").save()
    weightstore.Saver(path=tmp_path / "r", tensors={"w": torch.zeros(1)}, layout="recis", overwrite=True).save()
    with pytest.raises(KeyError, match="'v'"):
        weightstore.Loader(tmp_path / "r", tensors={"v": torch.ones(1)}).load()
    with pytest.raises(ValueError, match=r"is F32 \[1\], its target F64 \[1\]"):
        weightstore.Loader(tmp_path / "r", tensors={"w": torch.ones(1).double()}).load()
    with pytest.raises(weightstore.TensorNotFound):
        weightstore.CheckpointReader(tmp_path / "r").read_tensor("v")
    with pytest.raises(weightstore.InvalidArgument, match="twice"):
        weightstore.Saver(tensors=[("w", torch.ones(1)), ("w", torch.ones(1))])


def test_torchscript(tmp_path):
    @torch.jit.script
    def save(path: str, w: torch.Tensor) -> int:
        table = torch.classes.store.HashTable("user", [2], 6, 0, 65536, 65536, 4096, [])
        table.insert(torch.tensor([1, 2]), torch.ones(2, 2))
        saver = torch.classes.store.Saver(0, 1, 2, path)
        blocks = saver.make_write_blocks({"user": table}, {"w": w})
        saver.save(blocks)
        return len(blocks)

    assert save(str(tmp_path), torch.ones(3)) == 3
    assert weightstore.CheckpointReader(tmp_path).tensor_names() == ["user@embedding", "user@id", "w"]


def test_the_arguments_and_their_order():
    parameters = list(inspect.signature(weightstore.Saver).parameters.values())
    positional = [(each.name, each.default) for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
    assert positional[:-1] == [
        ("shard_index", 0),
        ("shard_num", 1),
        ("parallel", 8),
        ("path", "."),
        ("hashtables", None),
        ("tensors", None),
    ]
    name, filter_func = positional[-1]
    assert name == "filter_func"
    assert filter_func([1, 2]) == [1, 2]
    options = {each.name: each.default for each in parameters if each.kind is each.KEYWORD_ONLY}
    assert options.keys() == {
        "layout", "durable", "checksums", "max_block_bytes", "overwrite", "attempt", "run", "timeout", "progress",
    }  # fmt: skip
    assert (options["layout"], options["durable"], options["checksums"], options["overwrite"]) == (
        "plain", True, True, False,
    )  # fmt: skip


def test_each_call_of_configure_changes_what_it_names(tmp_path):
    saver = torch.classes.store.Saver(0, 1, 1, str(tmp_path))
    saver.configure('{"layout": "recis"}')
    saver.configure('{"durable": false}')
    with pytest.raises(RuntimeError, match="no option 'speed'"):
        saver.configure('{"layout": "plain", "speed": 1}')
    saver.save(saver.make_write_blocks({"user": filled(torch.arange(10))}, {}))
    assert (tmp_path / "tensorkey.json").exists()


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("make", [lambda x: None, lambda x: torch.nested.nested_tensor([x]), lambda x: x.to_mkldnn()])
def test_what_is_no_dense_tensor_is_named(tmp_path, make):
    saver = torch.classes.store.Saver(0, 1, 1, str(tmp_path))
    with pytest.raises(RuntimeError, match=r"tensor 'w': is (None; expected|nested; pass|an mkldnn tensor; pass)"):
        saver.make_write_blocks({}, {"w": make(torch.ones(2))})


def test_split():
    user = table()
    assert weightstore.split_sparse_dense_state_dict({"user": user, "w": 1}) == ({"user": user}, {"w": 1})


def test_hugging_face_reads_the_plain_layout(tmp_path):
    dense = {f"layer.{i}": torch.randn(600, 600) for i in range(4)}
    weightstore.Saver(0, 1, 2, tmp_path, tensors=dense).save()
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == 4 * 600 * 600 * 4
    for name, file in index["weight_map"].items():
        with safetensors.safe_open(tmp_path / file, "pt") as opened:
            assert opened.metadata()["format"] == "pt"
            assert torch.equal(opened.get_tensor(name), dense[name])
    assert len(set(index["weight_map"].values())) == 2


@pytest.mark.parametrize("spelling", ["real/", "link", "./link/."])
def test_a_failed_save_is_remembered_under_every_spelling_of_the_directory(tmp_path, monkeypatch, spelling):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with pytest.raises(TimeoutError):
        weightstore.Saver(0, 2, 1, "real", timeout=0.05).save()
    leader = weightstore.Saver(0, 2, 1, spelling, timeout=20).save_async()
    with pytest.raises(weightstore.errors.ConflictError, match="pass the same `attempt`"):
        weightstore.Saver(1, 2, 1, "real", timeout=20).save()
    with pytest.raises(weightstore.StoreError, match="shard 1"):
        leader.result()


def test_a_recis_index_cannot_have_other_files_removed(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "index").write_text(json.dumps({"block_index": {}, "file_index": {"notes.txt": 0}}))
    weightstore.Saver(path=tmp_path, tensors={"w": torch.zeros(2)}, layout="recis", overwrite=True).save()
    assert (tmp_path / "notes.txt").read_text() == "mine"

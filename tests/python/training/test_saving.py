"""CheckpointManager: what save() does, and what it leaves in the directory."""

from __future__ import annotations

import json
import os
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest

import weightstore
from weightstore import CheckpointManager, ConflictError, FormatError, InvalidArgument, TensorNotFound

torch = pytest.importorskip("torch")
from support.training_runs import Training, equal, saved_run  # noqa: E402


@pytest.fixture(params=[True, False], ids=["async", "sync"])
def async_save(request: pytest.FixtureRequest) -> bool:
    return request.param


def test_a_run_goes_on_bit_for_bit(tmp_path: Path, async_save: bool) -> None:
    training, values = saved_run(tmp_path, 3, async_save=async_save)
    expected = [training.step() for _ in range(3)]
    after = training.values()

    other = Training(seed=1)
    other.step()
    with CheckpointManager(tmp_path) as manager:
        restored = manager.restore(other.state())
    assert restored is not None
    assert (restored.step, restored["epoch"], restored.world_size) == (3, 3, 1)
    assert equal(other.values(), values[3])
    assert [other.step() for _ in range(3)] == expected
    assert equal(other.values(), after)


def test_an_async_save_has_the_values_of_its_call(tmp_path: Path) -> None:
    tensor, array = torch.zeros(1 << 20), np.zeros(1000)
    with CheckpointManager(tmp_path, max_to_keep=None) as manager:
        for step in range(6):
            tensor.fill_(step)
            array[:] = step
            manager.save(step, {"tensor": tensor, "array": array, "list": [step]})
            tensor.fill_(-1)
            array[:] = -1
        manager.wait()
        for step in range(6):
            found = manager.restore(step=step)
            assert found is not None
            assert found["tensor"].eq(step).all()
            assert (found["array"] == step).all()
            assert found["list"] == [step]


def test_everything_that_a_state_may_hold(tmp_path: Path, async_save: bool) -> None:
    weights = torch.arange(12.0).reshape(3, 4)
    state = {
        "plain": {"text": "ä", "none": None, 3: (1, 2.5, float("nan")), "ints": list(range(5000))},
        "tied": [weights, weights.t(), weights[1:]],
        "bf16": torch.ones(3, dtype=torch.bfloat16),
        "complex": torch.tensor([1 + 2j], dtype=torch.complex128),
        "empty": torch.zeros(0, 3),
        "scalar": torch.tensor(7),
        "bool": np.array([True, False]),
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "read only": np.frombuffer(b"12345678", np.int32),
        "nets": {"a": torch.nn.Linear(2, 2), "b": [torch.nn.Linear(1, 1)]},
        "ordered": OrderedDict(x=1),
    }
    with CheckpointManager(tmp_path, async_save=async_save) as manager:
        manager.save(0, state)
        manager.wait()
        found = manager.restore()
    assert found is not None
    assert list(found) == list(state)
    assert found["plain"]["ints"] == list(range(5000))
    assert found["plain"][3][:2] == (1, 2.5)
    assert found["tied"][1].data_ptr() == found["tied"][0].data_ptr()
    assert torch.equal(found["tied"][2], weights[1:])
    assert found["complex"].dtype == torch.complex128
    assert found["empty"].shape == (0, 3)
    assert found["bool"].tolist() == [True, False]
    assert found["fortran"].flags.f_contiguous
    assert found["read only"].tolist() == state["read only"].tolist()
    assert torch.equal(found["nets"]["b"][0]["weight"], state["nets"]["b"][0].weight)
    with weightstore.open(tmp_path / "step-00000000") as file:
        assert "nets.a.weight" in file


def test_the_files_of_a_step(tmp_path: Path) -> None:
    saved_run(tmp_path, 2)
    assert sorted(os.listdir(tmp_path)) == [".weightstore.lock", "step-00000001", "step-00000002"]
    names = sorted(os.listdir(tmp_path / "step-00000001"))
    assert names[1:] == ["model.safetensors.index.json", "state.json", "step.json"]
    document = json.loads((tmp_path / "step-00000001" / "step.json").read_text())
    assert document["weightstore"]["step"] == 1
    with weightstore.open(tmp_path / "step-00000002") as file:
        assert {"model.0.weight", "optimizer.state.0.exp_avg", "rank.0.rng.torch"} <= set(file.keys())
    weightstore.CheckpointReader(tmp_path / "step-00000002").verify()


def test_what_cannot_be_saved_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    with CheckpointManager(directory, best="loss") as manager:
        with pytest.raises(InvalidArgument, match=r"lack 'loss'.*given: 'acc'"):
            manager.save(1, {"x": 1}, {"acc": 1.0})
        with pytest.raises(InvalidArgument, match="lack 'loss'"):
            manager.save(1, {"x": 1})
        with pytest.raises(TypeError, match=r"metrics\['loss'\] is a str"):
            manager.save(1, {"x": 1}, {"loss": "low"})
        with pytest.raises(TypeError, match="a metric is a number"):
            manager.save(1, {"x": 1}, {"loss": torch.ones(2)})
        with pytest.raises(InvalidArgument, match=r"'config\.fn' is a function"):
            manager.save(1, {"config": {"fn": saved_run}}, {"loss": 1})
        with pytest.raises(TypeError, match="a step is an int, not a float"):
            manager.save(1.5, {"x": 1}, {"loss": 1})
        with pytest.raises(InvalidArgument, match="step -1"):
            manager.save(-1, {"x": 1}, {"loss": 1})
        with pytest.raises(TypeError, match="the state of a run is a dict"):
            manager.save(1, [1], {"loss": 1})
        with pytest.raises(InvalidArgument, match="'rank' is a name that weightstore uses"):
            manager.save(1, {"rank": 1}, {"loss": 1})
    assert not directory.exists()


def test_a_step_is_replaced_only_on_request(tmp_path: Path, async_save: bool) -> None:
    with CheckpointManager(tmp_path, async_save=async_save) as manager:
        manager.save(1, {"x": torch.ones(2)})
        manager.wait()
        with pytest.raises(ConflictError, match="step 1 is there already"):
            manager.save(1, {"x": torch.zeros(2)})
        manager.save(1, {"x": torch.full((2,), 5.0)}, overwrite=True)
        manager.wait()
        found = manager.restore()
        assert found is not None
        assert found["x"].tolist() == [5, 5]
    assert sorted(os.listdir(tmp_path)) == [".weightstore.lock", "step-00000001"]


def test_metrics(tmp_path: Path) -> None:
    values = {"loss": float("nan"), "inf": float("-inf"), "int": 3, "np": np.float32(0.5), "tensor": torch.tensor(2.5)}
    with CheckpointManager(tmp_path) as manager:
        manager.save(1, {}, values)
        manager.wait()
        found = manager.metrics(1)
        assert repr(found) == "{'loss': nan, 'inf': -inf, 'int': 3.0, 'np': 0.5, 'tensor': 2.5}"
        with pytest.raises(TensorNotFound, match=r"no complete step 2; the steps are: 1"):
            manager.metrics(2)
        with pytest.raises(InvalidArgument, match="Name a metric"):
            manager.best()


@pytest.mark.parametrize("name", ["step.json", "state.json"])
def test_every_damaged_byte_of_the_small_files_is_found(tmp_path: Path, name: str) -> None:
    with CheckpointManager(tmp_path, async_save=False) as manager:
        manager.save(1, {"x": [1, "a"]}, {"loss": 0.25})
        path = tmp_path / "step-00000001" / name
        whole = path.read_bytes()
        for position in range(len(whole) - (name == "step.json")):  # its last byte ends the line
            damaged = bytearray(whole)
            damaged[position] ^= 1
            path.write_bytes(damaged)
            with pytest.raises(FormatError, match=name):
                manager.restore()
        path.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(FormatError, match=name):
            manager.restore()


def test_a_damaged_tensor_is_found(tmp_path: Path) -> None:
    with CheckpointManager(tmp_path, async_save=False) as manager:
        manager.save(1, {"x": torch.ones(1000)})
        (file,) = (tmp_path / "step-00000001").glob("*.safetensors")
        data = bytearray(file.read_bytes())
        data[-5] ^= 1
        file.write_bytes(data)
        with pytest.raises(FormatError, match="tensor 'x'"):
            manager.restore({"x": torch.zeros(1000)})


def test_a_closed_manager_reads_only(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path)
    manager.save(1, {"x": 1})
    manager.close()
    manager.close()
    assert manager.latest() == 1
    with pytest.raises(InvalidArgument, match="closed"):
        manager.save(2, {"x": 1})


def test_options_are_checked(tmp_path: Path) -> None:
    for options, text in (
        ({"max_to_keep": 0}, "max_to_keep is 0"),
        ({"keep_every": -1}, "keep_every is -1"),
        ({"best_mode": "least"}, "best_mode is 'least'"),
        ({"on_busy": "panic"}, "on_busy is 'panic'"),
        ({"save_every": 0}, "save_every is 0"),
    ):
        with pytest.raises(InvalidArgument, match=text):
            CheckpointManager(tmp_path, **options)
    with pytest.raises(weightstore.StoreError, match="s3://bucket"):
        CheckpointManager("s3://bucket/run")
    (tmp_path / "file").touch()
    with pytest.raises(weightstore.StoreIOError, match="file"):
        CheckpointManager(tmp_path / "file").save(1, {})


def test_hash_tables(tmp_path: Path) -> None:
    from support.torch_classes import torch as with_classes  # noqa: F401

    def table() -> weightstore.HashTable:
        return weightstore.HashTable("user", [4], torch.float32)

    first, ids = table(), torch.arange(1000)
    first.insert(ids, torch.randn(1000, 4))
    expected = first.lookup(ids, False)[1].clone()
    with CheckpointManager(tmp_path) as manager:
        manager.save(1, {"tables": {"user": first}, "epoch": 3})
        first.insert(ids, torch.zeros(1000, 4))  # after the snapshot
        manager.wait()
        second = table()
        found = manager.restore({"tables": {"user": second}})
        assert found is not None
        assert found["epoch"] == 3
        assert torch.equal(second.lookup(ids, False)[1], expected)
        with pytest.raises(weightstore.ValidationError, match="'tables.user' is the table 'item', but 'user'"):
            manager.restore({"tables": {"user": weightstore.HashTable("item", [4], torch.float32)}})

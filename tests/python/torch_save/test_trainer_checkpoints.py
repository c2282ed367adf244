"""Checkpoints of real training runs: the weights are read by default, bit by bit what torch.load() gives."""

from __future__ import annotations

import io
import logging
import pathlib

import numpy as np
import pytest

import weightstore
from support.torch_files import archive, pickle_of_tensor
from support.torch_forms import FORMS, saved, tensors_of
from support.trainer_checkpoints import CHECKPOINTS, Average, TrainConfig
from weightstore import PytorchStore, read_config

torch = pytest.importorskip("torch")

# Module and classes that no reader knows, by the names under which they are listed.
LEFT_OUT = {
    "numpy_arrays_that_are_no_numbers": {"names", "objects", "when", "word"},
    "lightning_objects": {
        "hyper_parameters.config",
        "hyper_parameters.stage",
        "hyper_parameters.loss",
        "hyper_parameters.net",
        "callback_object",
    },
    "meters_and_defaultdicts": {"n", "meters.loss", "meters.acc"},
    "dataclass_and_namedtuple": {"config", "metrics", "stage"},
    "sparse_and_quantized": {"coo", "csr", "q", "q32", "meta"},
    "whole_optimizer": {"optimizer"},
    "tensor_attributes": {"weight"},
}


def bits(tensor) -> bytes:
    return bytes(tensor.contiguous().reshape(-1).view(torch.uint8).numpy())


def test_there_are_thirty():
    assert len(CHECKPOINTS) == 30
    assert LEFT_OUT.keys() < CHECKPOINTS.keys()


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_all_weights_are_those_of_torch_load(name, form):
    data = saved(CHECKPOINTS[name](), form)
    expected = tensors_of(torch.load(io.BytesIO(data), weights_only=False))
    assert expected
    with weightstore.open(data) as file:
        assert list(file) == sorted(expected)
        for tensor, value in expected.items():
            ours = file[tensor].torch()
            assert (ours.dtype, ours.shape) == (value.dtype, value.shape), tensor
            assert bits(ours) == bits(value), tensor
        assert {value.name for value in file.left_out} == LEFT_OUT.get(name, set())
        for value in file.left_out:
            assert value.type
            assert value.reason
            if value.name not in file:
                with pytest.raises(weightstore.PytorchError, match="left out"):
                    file[value.name]
    if name not in LEFT_OUT and name not in ("whole_model", "yolo_like", "lightning_hyperparameters"):
        assert len(weightstore.open(data, opaque="error")) == len(expected)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_they_are_converted_and_loaded_by_stores(name, tmp_path):
    path = tmp_path / "x.pt"
    path.write_bytes(saved(CHECKPOINTS[name](), "zip"))
    expected = tensors_of(torch.load(path, weights_only=False))
    plain = {key: value for key, value in expected.items() if value.dtype != torch.complex64}
    snapshots = PytorchStore.from_file(path).get_all_snapshots()
    assert snapshots.keys() == expected.keys()
    weightstore.convert(path, tmp_path / "x.safetensors")
    with weightstore.open(tmp_path / "x.safetensors") as file:
        for tensor, value in plain.items():
            assert bits(file[tensor].torch()) == bits(value)


@pytest.mark.parametrize("form", FORMS)
def test_arrays_of_numpy_are_verified_with_the_pickle(form):
    data = saved({"w": torch.ones(3), "a": np.arange(1000.0)}, form)
    if form == "stream":
        return
    with weightstore.open(data, verify="full") as file:
        assert file.verify() == 2
        assert file.without_checksum() == []
        assert bits(file["a"].torch()) == np.arange(1000.0).tobytes()


def test_what_is_left_out_is_logged(caplog):
    data = saved(CHECKPOINTS["dataclass_and_namedtuple"](), "zip")
    with caplog.at_level(logging.WARNING), weightstore.open(data) as file:
        (record,) = caplog.records
        assert "3 values were left out" in record.getMessage()
        assert "'config' (support.trainer_checkpoints.TrainConfig)" in record.getMessage()
        assert [value.type.rpartition(".")[2] for value in file.left_out] == ["TrainConfig", "Metrics", "Stage"]


def test_names_cannot_steer_a_terminal(caplog):
    data = archive(b"\x80\x02](" + pickle_of_tensor() + b"cmine\nThi\x1bng\n)\x81" + b"e.")
    with caplog.at_level(logging.WARNING), weightstore.open(data) as file:
        assert file.left_out[0].type == "mine.Thi\x1bng"
        assert "\x1b" not in caplog.text
        with pytest.raises(weightstore.PytorchError) as caught:
            file["1"]
        assert "\x1b" not in str(caught.value)


def test_plain_data_of_known_classes():
    config = read_config(saved(CHECKPOINTS["timm_with_ema"](), "zip"))
    assert config["args"] == {"model": "vit_tiny", "drop": 0.1, "mean": [0.5] * 3, "resume": None, "data": "d"}
    assert config["metric"] == 71.25
    for form in FORMS:
        numbers = read_config(saved(CHECKPOINTS["numpy_scalars"](), form))
        assert numbers["best"] == {"acc": 0.75, "loss": 0.5, "step": 9, "done": True}
        assert numbers["best"]["done"] is True
        assert isinstance(numbers["best"]["step"], int)
        assert (numbers["half"], numbers["z"]) == (1.5, [1.0, 2.0])
        dates = read_config(saved(CHECKPOINTS["dates_and_paths"](), form))
        del dates["model"]
        assert dates == {
            "started": "2024-01-02T03:04:05.000006-03:30",
            "day": "2024-02-29",
            "at": "23:59:00",
            "took": 86402.5,
            "path": "/runs/1/x.pt",
            "windows": "c:\\runs\\1",
            "version": str(torch.__version__),
        }
        others = read_config(saved(CHECKPOINTS["reinforcement_learning"](), form))
        assert (others["action_range"], others["steps"], others["seen"]) == ([0, 4, None], [0, 3, 1], [1, 2])
        assert others["replay"] == [None, None]
    data = saved(CHECKPOINTS["lightning_hyperparameters"](), "zip")
    assert read_config(data, "hyper_parameters.dims.1") == 2
    assert read_config(data, "hyper_parameters.when") == "2024-01-02T03:04:00"
    counted = read_config(saved(CHECKPOINTS["meters_and_defaultdicts"](), "zip"))
    del counted["model"]
    meters = {"loss": None, "acc": None}
    assert counted == {"h": {"loss": [0.5, 0.25]}, "c": {"seen": 3}, "n": {}, "meters": meters, "recent": [1.0, 2.0]}
    assert read_config(saved({(0, "x"): 5}, "zip"), "(0, 'x')") == 5


@pytest.mark.parametrize("number", ["b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"])
@pytest.mark.parametrize("order", "<>")
def test_numbers_of_numpy_are_numbers(number, order):
    values = np.array([1, 0, 3.5, -2, 250]).astype(order + number)
    found = read_config(saved(list(values), "zip"))
    assert found == values.tolist()
    assert list(map(type, found)) == list(map(type, values.tolist()))


def test_a_file_in_which_no_tensor_is_left_is_refused_by_name():
    with pytest.raises(weightstore.PytorchError, match="TrainConfig"):
        weightstore.open(saved({"a": 1, "config": TrainConfig()}, "zip"))
    with pytest.raises(weightstore.PytorchError, match="one object of 'support.trainer_checkpoints.Average'"):
        weightstore.open(saved(Average(), "zip"))
    with pytest.raises(weightstore.PytorchError, match="sparse"):
        weightstore.open(saved({"s": torch.eye(2).to_sparse()}, "zip"))
    assert read_config(saved({"a": 1, "config": TrainConfig()}, "zip")) == {"a": 1, "config": None}
    assert read_config(saved(Average(), "zip")) is None
    assert len(weightstore.open(saved({"a": 1, "p": pathlib.Path("x")}, "zip"))) == 0


def test_two_keys_of_one_name_are_both_named():
    with pytest.raises(weightstore.PytorchError, match=r"\['1'\] and by \[1\]") as caught:
        weightstore.open(saved({"1": torch.ones(1), 1: torch.ones(2)}, "zip"))
    assert caught.value.tensor == "1"
    with pytest.raises(weightstore.PytorchError, match=r"\['a.b'\] and by \['a'\]\['b'\]"):
        weightstore.open(saved({"a.b": torch.ones(1), "a": {"b": torch.ones(2)}}, "zip"))
    with pytest.raises(weightstore.PytorchError, match=r"\['None'\] and by \[None\]"):
        weightstore.open(saved({"None": torch.ones(1), None: torch.ones(2)}, "zip"))


@pytest.mark.parametrize(
    "key", [1e22, 1e16, 1e-5, 0.1, -0.0, float("inf"), 123456.0, (1,), (), (b"\xff'", "a\"'\n"), -7]
)
def test_a_key_has_the_name_that_str_gives(key):
    with weightstore.open(saved({"w": torch.zeros(1), key: [torch.ones(1)]}, "zip")) as file:
        assert set(file) == {"w", f"{key}.0"}

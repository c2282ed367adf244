"""Ids of parameters: given, saved, restored, and training continued with their help."""

from __future__ import annotations

import copy
import json
import subprocess
import sys

import numpy as np
import pytest

from weightstore import BurnpackStore, SafetensorsStore, collect, errors, param_ids, set_param_ids

torch = pytest.importorskip("torch")
nn = torch.nn


def test_without_an_id_it_is_a_hash_of_the_path():
    ids = param_ids(nn.Sequential(nn.Linear(2, 2)))
    assert list(ids) == ["0.weight", "0.bias"]
    # As printed by b2sum -l 64, read from the end.
    hashes = {"0.weight": "e678e01e015155c6", "0.bias": "156929744ae87ca0"}
    assert ids == {path: int.from_bytes(bytes.fromhex(text), "little") for path, text in hashes.items()}
    assert ids == param_ids({"0": {"weight": np.zeros(1), "bias": np.zeros(1)}})
    many = nn.Sequential(*(nn.BatchNorm1d(1) for _ in range(100)))
    assert len(set(param_ids(many).values())) == 500


def test_saving_writes_them_and_loading_restores_them():
    source = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    set_param_ids(source, {"0.weight": 7, "1.running_mean": (1 << 64) - 1})
    store = BurnpackStore.from_bytes(None)
    store.collect_from(source)
    assert store.get_snapshot("0.weight").param_id == 7
    target = nn.ModuleDict({"layers": nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))})
    store.with_key_remapping("^", "layers.").apply_to(target)
    assert list(param_ids(target).values()) == list(param_ids(source).values())
    assert param_ids(target)["layers.0.weight"] == 7
    assert param_ids(target.half().to(torch.float32))["layers.1.running_mean"] == (1 << 64) - 1
    assert param_ids(copy.deepcopy(target)) == param_ids(target)


def test_a_file_without_ids_leaves_those_of_the_module():
    module = nn.Linear(2, 2)
    set_param_ids(module, {"weight": 5})
    store = SafetensorsStore.from_bytes(None)
    store.collect_from(nn.Linear(2, 2))
    store.apply_to(module)
    assert param_ids(module)["weight"] == 5


def test_ids_follow_into_modules_on_the_meta_device():
    source = nn.Linear(2, 2)
    set_param_ids(source, {"weight": 9})
    store = BurnpackStore.from_bytes(None)
    store.collect_from(source)
    with torch.device("meta"):
        target = nn.Linear(2, 2)
    store.apply_to(target)
    assert param_ids(target)["weight"] == 9
    assert collect(target)[0].param_id == 9


def test_wrong_ids():
    module = nn.Linear(2, 2)
    with pytest.raises(errors.TensorNotFound, match="wieght"):
        set_param_ids(module, {"weight": 1, "wieght": 1})
    for value in (-1, 1 << 64, "1"):
        with pytest.raises(errors.InvalidArgument, match="64-bit"):
            set_param_ids(module, {"weight": value})
    with pytest.raises(errors.InvalidArgument, match="nn.Module"):
        set_param_ids({"a": np.zeros(1)}, {"a": 1})
    assert param_ids(module) == param_ids(nn.Linear(2, 2))


# Two programs over the same code: the first trains and saves half way, the second continues. The state of the optimizer is
# kept by parameter id, in a file of its own.
TRAIN = """
import json, sys
import torch
from torch import nn
from weightstore import BurnpackStore, param_ids

folder, part, steps = sys.argv[1], sys.argv[2], 6
torch.manual_seed(0)
inputs, targets = torch.rand(32, 4), torch.rand(32, 1)
model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1))
if part == "second":
    # Other values, and another name for everything: the ids come from the file.
    torch.manual_seed(99)
    model = nn.ModuleDict({"net": nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1))})
net = model if part != "second" else model["net"]
optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)

def by_id():
    ids = param_ids(model)
    return {str(ids[name]): parameter for name, parameter in model.named_parameters()}

if part == "second":
    BurnpackStore.from_file(folder + "/model").with_key_remapping("^", "net.").apply_to(model)
    store = BurnpackStore.from_file(folder + "/optimizer")
    tensors, scalars = store.get_all_snapshots(), store.get_scalars()
    for param_id, parameter in by_id().items():
        state = {field: tensors[f"{param_id}.{field}"].torch() for field in ("exp_avg", "exp_avg_sq")}
        optimizer.state[parameter] = {"step": torch.tensor(scalars[f"{param_id}.step"]), **state}

losses = []
for step in range(steps if part != "whole" else 2 * steps):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(net(inputs), targets)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

if part == "first":
    BurnpackStore.from_file(folder + "/model").collect_from(model)
    store, state = BurnpackStore.from_file(folder + "/optimizer"), {}
    for param_id, parameter in by_id().items():
        fields = dict(optimizer.state[parameter])
        store.scalar(param_id + ".step", float(fields.pop("step")))
        state[param_id] = fields
    store.collect_from(state)
print(json.dumps(losses))
"""


def test_training_continues_in_a_new_process(tmp_path):
    def train(part):
        return json.loads(subprocess.check_output([sys.executable, "-c", TRAIN, str(tmp_path), part], text=True))

    whole, first, second = train("whole"), train("first"), train("second")
    assert len(whole) == 12
    assert first + second == whole

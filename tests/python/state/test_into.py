"""load_state(path, into=...): into memory that is there."""

from __future__ import annotations

import numpy as np
import pytest

import weightstore
from weightstore import ValidationError, load_state, save_state

torch = pytest.importorskip("torch")


def trained(seed, tied=False):
    torch.manual_seed(seed)
    module = torch.nn.Sequential(torch.nn.Linear(4, 4, bias=False), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 4))
    if tied:
        module[2].weight = module[0].weight
    optimizer = torch.optim.AdamW(module.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        module(torch.randn(3, 4)).square().sum().backward()
        optimizer.step()
    return module, optimizer


def pointers(module, optimizer):
    state = optimizer.state_dict()["state"]
    return [p.data_ptr() for p in module.state_dict().values()] + [
        value.data_ptr() for each in state.values() for value in each.values()
    ]


@pytest.mark.parametrize("tied", [False, True])
def test_modules_and_optimizers_in_place(tmp_path, tied):
    module, optimizer = trained(0, tied)
    state = {"model": module.state_dict(), "optimizer": optimizer.state_dict(), "step": 2}
    save_state(tmp_path / "s", state)
    other, other_optimizer = trained(1, tied)
    before = pointers(other, other_optimizer)
    found = load_state(tmp_path / "s", into={"model": other, "optimizer": other_optimizer})
    assert found["step"] == 2
    assert pointers(other, other_optimizer) == before
    for a, b in zip(module.state_dict().values(), other.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    for index, values in optimizer.state_dict()["state"].items():
        for name, value in values.items():
            assert torch.equal(value, other_optimizer.state_dict()["state"][index][name])


def test_a_new_optimizer(tmp_path):
    module, optimizer = trained(0)
    save_state(tmp_path / "s", {"optimizer": optimizer.state_dict()})
    new = torch.optim.AdamW(module.parameters(), lr=3)
    load_state(tmp_path / "s", into={"optimizer": new})
    assert new.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"]
    assert torch.equal(new.state[module[0].weight]["exp_avg"], optimizer.state[module[0].weight]["exp_avg"])


def test_tied_weights_into_untied_ones(tmp_path):
    module, _ = trained(0, tied=True)
    save_state(tmp_path / "s", module.state_dict())
    other, _ = trained(1)
    load_state(tmp_path / "s", into=other)
    assert torch.equal(other[0].weight, module[0].weight)
    assert torch.equal(other[2].weight, module[0].weight)


def test_tensors_and_arrays(tmp_path):
    save_state(
        tmp_path / "s", [torch.arange(6.0).reshape(2, 3), {"n": np.arange(4), "c": np.array([1j])}, (torch.ones(2),)]
    )
    strided, array, complex_array = torch.zeros(3, 2).t(), np.zeros(4, np.int64), np.zeros(1, complex)
    found = load_state(tmp_path / "s", into=[strided, {"n": array, "c": complex_array}])
    assert found[0] is strided
    assert found[1]["n"] is array
    assert strided.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert array.tolist() == [0, 1, 2, 3]
    assert complex_array[0] == 1j
    assert torch.equal(found[2][0], torch.ones(2))


def test_one_tensor_of_the_file_in_two_places(tmp_path):
    one = torch.ones(3)
    save_state(tmp_path / "s", {"a": one, "b": one})
    a, b = torch.zeros(3), torch.zeros(3)
    load_state(tmp_path / "s", into={"a": a, "b": b})
    assert a.tolist() == b.tolist() == [1, 1, 1]


def test_everything_that_does_not_fit_is_listed_and_nothing_changes(tmp_path):
    module, _ = trained(0)
    save_state(
        tmp_path / "s", {"model": module.state_dict(), "x": torch.ones(3), "n": np.ones(2), "l": [torch.ones(1)]}
    )
    other = torch.nn.Sequential(torch.nn.Linear(4, 4, bias=False), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 5))
    before = {name: value.clone() for name, value in other.state_dict().items()}
    x, n = torch.zeros(3, dtype=torch.float64), np.zeros(3)
    into = {"model": other, "x": x, "n": n, "missing": torch.ones(1), "l": [torch.zeros(1), torch.zeros(1)]}
    into["dict"] = {"y": torch.ones(1)}
    with pytest.raises(ValidationError) as caught:
        load_state(tmp_path / "s", into=into)
    text = str(caught.value)
    for words in (
        "'model.2.weight' is torch.float32 [5, 4], but torch.float32 [4, 4] in the file",
        "'model.2.bias' is torch.float32 [5], but torch.float32 [4] in the file",
        "'x' is torch.float64 [3], but torch.float32 [3] in the file",
        "'n' is float64 [3], but float64 [2] in the file",
        "'missing' is not in the file",
        "'dict' is not in the file",
        "'l' has 2 items, but 1 in the file",
    ):
        assert words in text
    assert all(torch.equal(before[name], value) for name, value in other.state_dict().items())
    assert x.sum() == n.sum() == 0


def test_a_module_with_other_names(tmp_path):
    save_state(tmp_path / "s", {"model": torch.nn.Linear(2, 2, bias=False).state_dict()})
    with pytest.raises(ValidationError, match=r"'model\.bias' is not in the file"):
        load_state(tmp_path / "s", into={"model": torch.nn.Linear(2, 2)})
    save_state(tmp_path / "s", {"model": torch.nn.Linear(2, 2).state_dict()})
    with pytest.raises(ValidationError, match=r"'model\.bias' is in the file, but not in the module"):
        load_state(tmp_path / "s", into={"model": torch.nn.Linear(2, 2, bias=False)})


def test_damage_is_found_before_the_result_is_returned(tmp_path):
    save_state(tmp_path / "s", {"w": torch.arange(1000.0)})
    data = bytearray((tmp_path / "s").read_bytes())
    data[-1] ^= 1
    (tmp_path / "s").write_bytes(data)
    with pytest.raises(weightstore.FormatError, match="'w'"):
        load_state(tmp_path / "s")


class Careful:
    """Takes a state only if it likes it. Its tensors are its own."""

    def __init__(self, value, refuses=False):
        self.weights, self.value, self.refuses = torch.full((3,), float(value)), value, refuses

    def state_dict(self):
        return {"weights": self.weights, "value": self.value}

    def load_state_dict(self, state):
        self.value = state["value"]
        if self.refuses:
            raise RuntimeError("I refuse")
        self.weights.copy_(state["weights"])


def test_nothing_has_changed_when_an_object_refuses(tmp_path):
    module, optimizer = trained(0)
    objects = {"model": module, "optimizer": optimizer, "first": Careful(1), "second": Careful(2)}
    save_state(tmp_path / "s", {name: each.state_dict() for name, each in objects.items()})
    other, other_optimizer = trained(1)
    into = {"first": Careful(7), "second": Careful(8, refuses=True), "model": other, "optimizer": other_optimizer}
    before = [value.clone() for value in (*other.state_dict().values(), into["first"].weights, into["second"].weights)]
    moments = [each["exp_avg"].clone() for each in other_optimizer.state_dict()["state"].values()]
    with pytest.raises(RuntimeError, match="I refuse"):
        load_state(tmp_path / "s", into=into)
    after = [*other.state_dict().values(), into["first"].weights, into["second"].weights]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert into["first"].value == 7
    now = [each["exp_avg"] for each in other_optimizer.state_dict()["state"].values()]
    assert all(torch.equal(a, b) for a, b in zip(moments, now, strict=True))
    into["second"].refuses = False
    load_state(tmp_path / "s", into=into)
    assert (into["first"].value, into["second"].value) == (1, 2)
    assert into["second"].weights.tolist() == [2, 2, 2]


@pytest.mark.parametrize("changed", ["groups", "parameters"])
def test_an_optimizer_of_other_parameters_is_refused_before_anything_changes(tmp_path, changed):
    module, optimizer = trained(0)
    save_state(tmp_path / "s", {"model": module.state_dict(), "optimizer": optimizer.state_dict()})
    other, _ = trained(1)
    before = {name: value.clone() for name, value in other.state_dict().items()}
    parameters = list(other.parameters())
    if changed == "groups":
        wrong = torch.optim.AdamW([{"params": parameters[:2]}, {"params": parameters[2:]}])
        message = "'optimizer' has 2 groups of parameters, but 1 in the file"
    else:
        wrong = torch.optim.AdamW(parameters[1:])
        message = r"'optimizer.param_groups.0.params' has 4 parameters, but 5 in the file"
    with pytest.raises(ValidationError, match=message):
        load_state(tmp_path / "s", into={"model": other, "optimizer": wrong})
    assert all(torch.equal(before[name], value) for name, value in other.state_dict().items())

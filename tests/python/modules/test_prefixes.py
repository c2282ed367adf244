"""Names that differ by a prefix: the error prints the call that renames them, and the call works."""

import re

import numpy as np
import pytest
import torch

import weightstore
import weightstore.numpy
import weightstore.torch
from weightstore import BurnpackStore, FileStore, SafetensorsStore, TensorNotFound, load_from
from weightstore._modules.apply.prefixes import find_renaming

PREFIXES = [
    "module.",
    "_orig_mod.",
    "model.",
    "backbone.",
    "backbone.body.",
    "module._orig_mod.",
    "a-b$c (d).",
    "net_1.",
]


def layers(count=4):
    return torch.nn.Sequential(*[torch.nn.Linear(3, 3) for _ in range(count)])


def nest(prefix, values):
    """A nested dict in which the values have this prefix."""
    for part in reversed(prefix.rstrip(".").split(".")):
        values = {part: values}
    return values


def printed_calls(error):
    """The line that is printed: calls on `store`."""
    return re.search(r"^    (store\..*)$", str(error), re.MULTILINE)[1]


def renamed_by(calls, path):
    """What a user gets who pastes the calls."""
    return eval(calls, {"store": FileStore.from_file(path)})


def refused(module, path):
    with pytest.raises(TensorNotFound) as caught:
        load_from(module, path)
    return caught.value


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("kind", [SafetensorsStore, BurnpackStore], ids=lambda kind: kind.__name__)
def test_the_file_has_a_prefix(prefix, kind, tmp_path):
    model, target = layers(), layers()
    path = tmp_path / "weights.bin"
    kind.from_file(path).collect_from(nest(prefix, dict(model.state_dict())))
    error = refused(target, path)
    assert "Renaming finds 8 of the 8 missing ones" in str(error)
    result = load_from(target, renamed_by(printed_calls(error), path))
    assert len(result.applied) == 8
    for name, value in model.state_dict().items():
        assert torch.equal(target.state_dict()[name], value)


@pytest.mark.parametrize("prefix", PREFIXES)
def test_the_module_has_a_prefix(prefix, tmp_path):
    path = tmp_path / "m.safetensors"
    arrays = {f"{i}.weight": np.full((2, 2), float(i)) for i in range(12)}
    weightstore.numpy.save_file(arrays, path)
    target = nest(prefix, {name: np.zeros((2, 2)) for name in arrays})
    error = refused(target, path)
    result = load_from(target, renamed_by(printed_calls(error), path))
    assert result.applied == [prefix + name for name in arrays]


def test_every_missing_parameter_names_its_tensor(tmp_path):
    path = tmp_path / "m.safetensors"
    weightstore.torch.save_file({"module." + name: value for name, value in layers().state_dict().items()}, path)
    text = str(refused(layers(), path))
    for name in layers().state_dict():
        assert f"did you mean 'module.{name}'?" in text


def test_only_some_names_have_a_prefix(tmp_path):
    """What is found already stays: the rule must not rename it."""
    path = tmp_path / "m.safetensors"
    names = ["stem.w", "layer1.w", "layer1.b", "layer2.w", "norm.w"]
    weightstore.numpy.save_file({name: np.full(i + 1, float(i)) for i, name in enumerate(names)}, path)
    target = {
        "stem": {"w": np.zeros(1)},
        "norm": {"w": np.zeros(5)},
        "trunk": {"layer1": {"w": np.zeros(2), "b": np.zeros(3)}, "layer2": {"w": np.zeros(4)}},
    }
    error = refused(target, path)
    result = load_from(target, renamed_by(printed_calls(error), path))
    assert len(result.applied) == 5
    assert not result.missing
    assert target["trunk"]["layer2"]["w"][0] == 3


def test_two_prefixes_need_two_calls(tmp_path):
    path = tmp_path / "m.safetensors"
    arrays = {
        "enc.a.w": np.full(1, 1.0),
        "enc.b.w": np.full(2, 2.0),
        "dec.c.w": np.full(3, 3.0),
        "dec.d.w": np.full(4, 4.0),
    }
    weightstore.numpy.save_file(arrays, path)
    target = {
        "encoder": {"a": {"w": np.zeros(1)}, "b": {"w": np.zeros(2)}},
        "decoder": {"c": {"w": np.zeros(3)}, "d": {"w": np.zeros(4)}},
    }
    calls = printed_calls(refused(target, path))
    assert calls.count(".with_key_remapping(") == 2
    assert len(load_from(target, renamed_by(calls, path)).applied) == 4


def test_a_typo_is_no_prefix_of_another_shape(tmp_path):
    path = tmp_path / "m.safetensors"
    weightstore.numpy.save_file({"head.w": np.zeros(3), "head.b": np.zeros(3)}, path)
    error = refused({"classifier": {"w": np.zeros(10), "b": np.zeros(10)}}, path)
    assert "with_key_remapping(" not in str(error).split("unused")[1]
    assert error.result.renaming.rules == []


def test_names_that_share_only_their_last_component_are_not_taken_for_renamed():
    found = find_renaming({"a.weight": (2,)}, {"b.weight": (2,)}, ["b.weight"], ["a.weight"])
    assert found.rules == []
    found = find_renaming({"weight": (2,)}, {"b.weight": (2,)}, ["b.weight"], ["weight"])
    assert found.rules == [("^", "b.")]


def test_many_names_take_one_pass():
    """Names by the hundred thousand, of which all end alike: no pair of names is compared with another."""
    names = [f"layers.{i}.mlp.weight" for i in range(100_000)]
    shapes = dict.fromkeys(names, (1,))
    prefixed = {"module." + name: (1,) for name in names}
    found = find_renaming(prefixed, shapes, names, list(prefixed))
    assert found.rules == [(r"^module\.", "")]
    assert len(found.found) == len(names)


def test_a_repr_is_short():
    result = weightstore.apply(layers(200), [])
    assert repr(result) == "<ApplyResult: 0 applied, 0 skipped, 400 missing, 0 unused, 0 errors>"

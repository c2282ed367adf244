"""The state of Adam and AdamW as Burn's record of an optimizer, and back."""

from __future__ import annotations

import copy

import pytest

from weightstore import (
    BurnpackStore,
    BurnToPyTorchAdapter,
    PyTorchToBurnAdapter,
    SafetensorsStore,
    errors,
    param_ids,
    set_param_ids,
)

torch = pytest.importorskip("torch")
nn = torch.nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.norm = nn.LayerNorm(4)
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.lstm = nn.LSTM(4, 2, batch_first=True)
        self.unused = nn.Linear(1, 1)

    def forward(self, x):
        x = self.norm(self.fc(x))
        return self.lstm(self.attention(x, x, x)[0])[0]


def step(model, optimizer, seed=0):
    x = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(seed))
    optimizer.zero_grad()
    model(x).square().sum().backward()
    optimizer.step()


def trained(kind=torch.optim.Adam, **options):
    model = Model()
    optimizer = kind(model.parameters(), 1e-2, **options)
    for seed in range(3):
        step(model, optimizer, seed)
    return model, optimizer


def record_of(optimizer, model, **options):
    store = BurnpackStore.from_bytes(None).with_to_adapter(PyTorchToBurnAdapter())
    for option, value in options.items():
        getattr(store, option)(value)
    store.collect_optimizer(optimizer, model)
    return BurnpackStore.from_bytes(store.get_bytes()).with_from_adapter(BurnToPyTorchAdapter()).allow_partial(True)


def test_the_record():
    model, optimizer = trained()
    set_param_ids(model, {"fc.weight": 7})
    record = record_of(optimizer, model)
    state = optimizer.state[model.fc.weight]
    assert torch.equal(record.get_snapshot("7.momentum.moment_1").torch(), state["exp_avg"].t())
    assert torch.equal(record.get_snapshot("7.momentum.moment_2").torch(), state["exp_avg_sq"].t())
    assert record.get_snapshot("7.momentum.max_moment_2") is None
    assert record.get_snapshot("7.momentum.moment_1").param_id == 7
    scalars, paths = record.get_scalars(), record.get_metadata()
    assert (scalars["7.__rank"], scalars["7.momentum.time"], paths["7"]) == (2, 3, "fc.weight")
    ids = {path: key for key, path in paths.items()}
    assert {"norm.gamma", "attention.query.weight", "attention.output.bias"} <= set(ids)
    assert "lstm.forget_gate.hidden_transform.bias" in ids
    assert not any(path.startswith("unused") for path in ids)  # which had no gradient
    assert len(record.keys()) == 2 * len(ids) == len(scalars)
    queries = record.get_snapshot(f"{ids['attention.query.weight']}.momentum.moment_1")
    assert torch.equal(queries.torch(), optimizer.state[model.attention.in_proj_weight]["exp_avg"][:4].t())


def test_ids_are_those_of_the_saved_model():
    model, optimizer = trained()
    saved = BurnpackStore.from_bytes(None).with_to_adapter(PyTorchToBurnAdapter())
    saved.collect_from(model)
    ids = {str(snapshot.param_id): name for name, snapshot in saved.get_all_snapshots().items()}
    paths = record_of(optimizer, model).get_metadata()
    assert paths.items() <= ids.items()
    renamed = BurnpackStore.from_bytes(None)
    renamed.with_to_adapter(PyTorchToBurnAdapter()).with_key_remapping("^fc", "dense").collect_optimizer(
        optimizer, model
    )
    assert "dense.weight" in renamed.get_metadata().values()


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (torch.optim.Adam, {}),
        (torch.optim.Adam, {"amsgrad": True, "weight_decay": 0.1}),
        (torch.optim.AdamW, {"weight_decay": 0.1}),
        (torch.optim.AdamW, {"amsgrad": True, "foreach": False}),
    ],
)
def test_the_next_step_is_the_same(kind, options):
    model, optimizer = trained(kind, **options)
    other = copy.deepcopy(model)
    without = copy.deepcopy(model)
    theirs = kind(other.parameters(), 1e-2, **options)
    result = record_of(optimizer, model).apply_optimizer(theirs, other)
    assert result.missing == ["unused.bias", "unused.weight"]
    assert result.unused == []
    for each, its in ((model, optimizer), (other, theirs), (without, kind(without.parameters(), 1e-2, **options))):
        step(each, its, 9)
    for name, value in model.state_dict().items():
        assert torch.equal(value, other.state_dict()[name]), name
    assert not torch.equal(model.fc.weight, without.fc.weight)


def test_groups_and_frozen_parameters():
    def make(model):
        model.norm.requires_grad_(False)
        groups = [{"params": [model.fc.bias], "lr": 0.5}, {"params": [model.lstm.weight_ih_l0, model.fc.weight]}]
        return torch.optim.Adam(groups, 1e-2)

    model, other = Model(), Model()
    optimizer, theirs = make(model), make(other)
    step(model, optimizer)
    result = record_of(optimizer, model).allow_partial(False).apply_optimizer(theirs, other)
    assert result.applied == ["fc.weight", "fc.bias", "lstm.weight_ih_l0"]
    for one, two in ((model.fc.weight, other.fc.weight), (model.lstm.weight_ih_l0, other.lstm.weight_ih_l0)):
        assert torch.equal(optimizer.state[one]["exp_avg"], theirs.state[two]["exp_avg"])
    assert theirs.param_groups[0]["lr"] == 0.5


def test_filters_choose_parameters():
    model, optimizer = trained()
    store = BurnpackStore.from_bytes(None).with_to_adapter(PyTorchToBurnAdapter()).with_regex("^fc")
    store.collect_optimizer(optimizer, model)
    assert sorted(store.get_metadata().values()) == ["fc.bias", "fc.weight"]
    other = torch.optim.Adam(model.parameters())
    store.with_from_adapter(BurnToPyTorchAdapter()).apply_optimizer(other, model)
    assert set(other.state) == {model.fc.weight, model.fc.bias}


def test_a_state_of_other_parameters():
    model, optimizer = trained()
    record = record_of(optimizer, model).allow_partial(False)
    other = Model()
    set_param_ids(other, {name: i for i, name in enumerate(param_ids(other))})
    theirs = torch.optim.Adam(other.parameters())
    with pytest.raises(errors.TensorNotFound) as caught:
        record.apply_optimizer(theirs, other)
    assert "fc.weight" in caught.value.result.missing
    assert len(caught.value.result.unused) > 0
    assert not theirs.state


def changed(record, change):
    """The record with other tensors and scalars."""
    tensors, scalars = dict(record.get_all_snapshots()), dict(record.get_scalars())
    change(tensors, scalars)
    store = BurnpackStore.from_bytes(None)
    for name, value in scalars.items():
        store.scalar(name, value)
    store.collect_from(tensors)
    return store.with_from_adapter(BurnToPyTorchAdapter()).allow_partial(True)


def test_records_that_do_not_fit():
    model, optimizer = trained()
    set_param_ids(model, {"fc.weight": 7, "norm.weight": 8})
    record = record_of(optimizer, model)
    ids = {path: key for key, path in record.get_metadata().items()}
    query, key = ids["attention.query.weight"], ids["attention.key.weight"]

    def swap(tensors, scalars):
        tensors["7.momentum.moment_1"] = tensors["8.momentum.moment_1"]

    def lose(tensors, scalars):
        del tensors["7.momentum.moment_2"]

    def lose_part(tensors, scalars):
        del tensors[f"{key}.momentum.moment_1"]

    def forget(tensors, scalars):
        del scalars["7.momentum.time"]

    def differ(tensors, scalars):
        scalars[f"{query}.momentum.time"] = 9

    for change, path, text in (
        (swap, "fc.weight", "where [4, 4] is expected"),
        (lose, "fc.weight", "the record lacks 7.momentum.moment_2"),
        (lose_part, "attention.in_proj_weight", f"the record lacks {key}.momentum.moment_1"),
        (forget, "fc.weight", "steps"),
        (differ, "attention.in_proj_weight", "different numbers of steps"),
    ):
        theirs = torch.optim.Adam(model.parameters())
        with pytest.raises(errors.ValidationError) as caught:
            changed(record, change).apply_optimizer(theirs, model)
        ((found, error),) = caught.value.result.errors
        assert found == path
        assert text in str(error)
        assert not theirs.state


def test_amsgrad_is_not_lost():
    model, optimizer = trained(amsgrad=True)
    with pytest.raises(errors.ValidationError, match="amsgrad=True"):
        record_of(optimizer, model).apply_optimizer(torch.optim.Adam(model.parameters()), model)
    plain = torch.optim.Adam(model.parameters())
    step(model, plain)
    theirs = torch.optim.Adam(model.parameters(), amsgrad=True)
    record_of(plain, model).apply_optimizer(theirs, model)
    state = theirs.state[model.fc.weight]
    assert torch.equal(state["max_exp_avg_sq"], state["exp_avg_sq"])  # as Burn begins
    assert state["max_exp_avg_sq"].data_ptr() != state["exp_avg_sq"].data_ptr()


def test_what_is_no_adam():
    model = Model()
    store = BurnpackStore.from_bytes(None)
    for optimizer in (torch.optim.SGD(model.parameters(), 0.1), torch.optim.RAdam(model.parameters())):
        with pytest.raises(errors.InvalidArgument, match=f"not {type(optimizer).__name__}"):
            store.collect_optimizer(optimizer, model)
    optimizer = torch.optim.Adam(Model().parameters())
    with pytest.raises(errors.InvalidArgument, match="parameters that the model does not have"):
        store.collect_optimizer(optimizer, model)
    with pytest.raises(TypeError, match=r"torch\.nn\.Module"):
        store.collect_optimizer(optimizer, dict(model.state_dict()))
    assert not hasattr(SafetensorsStore, "collect_optimizer")

"""States of torch: tensors of every type, modules, optimizers, schedulers, generators."""

from __future__ import annotations

import copy
import inspect
import warnings

import numpy as np
import pytest

import weightstore
from support.state_equality import assert_same
from weightstore import InvalidArgument, load_state, save_state

torch = pytest.importorskip("torch")


@pytest.fixture
def trip(tmp_path):
    def there_and_back(state):
        save_state(tmp_path / "state.safetensors", state, durable=False)
        return load_state(tmp_path / "state.safetensors")

    return there_and_back


DTYPES = [value for value in vars(torch).values() if isinstance(value, torch.dtype)]
SAVED = sorted({d for d in DTYPES if d.itemsize and not str(d).startswith(("torch.q", "torch.bits"))}, key=str)


@pytest.mark.parametrize("dtype", SAVED, ids=str)
def test_every_type(trip, dtype):
    try:
        data = torch.randint(0, 2, (3, 16), dtype=torch.uint8).view(dtype)
    except RuntimeError as error:
        pytest.skip(f"torch makes no such tensors: {error}")
    try:
        found = trip({"t": data, "dtype": dtype})
    except InvalidArgument as error:
        assert f"a file cannot hold {dtype}" in str(error)
        assert dtype not in (torch.complex128, torch.complex32, torch.bfloat16, torch.float8_e4m3fn, torch.uint16)
        return
    assert found["dtype"] is dtype
    assert found["t"].dtype is dtype
    assert torch.equal(found["t"].view(torch.uint8), data.view(torch.uint8))


def test_forms_of_tensors(trip):
    base = torch.arange(24.0).reshape(2, 3, 4)
    state = {
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "frozen": torch.nn.Parameter(torch.ones(2), requires_grad=False),
        "grad": torch.ones(2, requires_grad=True),
        "scalar": torch.tensor(3),
        "empty": torch.empty(0, 3),
        "transposed": base.mT.clone().mT,
        "channels_last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "expanded": torch.ones(3, 1).expand(3, 4),
        "conj": torch.tensor([1 + 2j]).conj(),
        "neg": torch.tensor([1 + 2j, 3 - 1j]).conj().imag,
        "size": base.shape,
        "device": torch.device("cuda:1"),
    }
    found = trip(state)
    assert_same(found, state)
    for name in ("transposed", "channels_last"):
        assert found[name].stride() == state[name].stride()


def test_shared_tensors_stay_shared(trip):
    weight = torch.arange(12.0).reshape(3, 4)
    state = {
        "a": weight,
        "again": weight,
        "tied": weight.detach(),
        "t": weight.t(),
        "row": weight[1],
        "bytes": weight.view(torch.uint8),
    }
    found = trip(state)
    assert_same(found, state)
    assert found["a"] is found["again"]
    assert found["tied"] is not found["a"]
    found["a"][1, 0] = 99
    assert found["tied"][1, 0] == found["t"][0, 1] == found["row"][0] == 99
    assert found["bytes"].view(torch.float32)[1, 0] == 99


def test_views_without_an_owner(tmp_path):
    base = torch.arange(100.0)
    state = {"left": base[3:60], "right": base[40:90:2], "apart": base[95:], "imag": torch.tensor([1 + 2j]).imag}
    save_state(tmp_path / "s", state)
    with weightstore.open(tmp_path / "s") as file:
        assert list(file) == ["apart", "imag", "left.storage"]
        assert file["left.storage"].nbytes == (89 - 0) * 4  # from a multiple of 16 bytes
    found = load_state(tmp_path / "s")
    assert_same(found, state)
    found["left"][40 - 3] = -1
    assert found["right"][0] == -1


def test_shared_arrays_stay_shared(trip):
    base = np.arange(20.0)
    state = [base[2:12], base[5:], base[::-1], base.reshape(4, 5).T]
    found = trip(state)
    assert_same(found, state)
    found[0][3] = -7
    assert [found[1][0], found[2][14], found[3][0, 1]] == [-7, -7, -7]


def optimizers():
    for name, cls in vars(torch.optim).items():
        if inspect.isclass(cls) and issubclass(cls, torch.optim.Optimizer) and cls is not torch.optim.Optimizer:
            yield name, cls


@pytest.mark.parametrize(("name", "cls"), [*optimizers()])
def test_optimizers(trip, name, cls):
    torch.manual_seed(0)
    if name == "SparseAdam":
        module = torch.nn.Embedding(5, 3, sparse=True)
        inputs = torch.tensor([1, 3])
    else:
        module = torch.nn.Linear(4, 3, bias=name != "Muon")
        inputs = torch.randn(2, 4)
    options = {"lr": 0.1} if name in ("SGD", "LBFGS") else {}
    options |= {"momentum": 0.9} if name == "SGD" else {}

    def step(module, optimizer):
        def closure():
            optimizer.zero_grad()
            loss = module(inputs).square().sum()
            loss.backward()
            return loss

        optimizer.step(closure)

    optimizer = cls(module.parameters(), **options)
    for _ in range(3):
        step(module, optimizer)
    state = {"model": module.state_dict(), "optimizer": optimizer.state_dict()}
    found = trip(state)
    assert_same(found, state)

    other = copy.deepcopy(module)
    other.load_state_dict(found["model"])
    resumed = cls(other.parameters(), **options)
    resumed.load_state_dict(found["optimizer"])
    step(module, optimizer)
    step(other, resumed)
    assert all(map(torch.equal, module.parameters(), other.parameters()))


def schedulers(optimizer):
    s = torch.optim.lr_scheduler
    return [
        s.StepLR(optimizer, 2),
        s.MultiStepLR(optimizer, [1, 3, 3]),
        s.ConstantLR(optimizer),
        s.LinearLR(optimizer),
        s.ExponentialLR(optimizer, 0.5),
        s.PolynomialLR(optimizer),
        s.CosineAnnealingLR(optimizer, 5),
        s.CosineAnnealingWarmRestarts(optimizer, 2),
        s.CyclicLR(optimizer, 0.01, 0.1),
        s.OneCycleLR(optimizer, 0.1, total_steps=10),
        s.LambdaLR(optimizer, lambda epoch: 0.9**epoch),
        s.MultiplicativeLR(optimizer, lambda epoch: 0.9),
        s.ReduceLROnPlateau(optimizer),
        s.SequentialLR(optimizer, [s.ConstantLR(optimizer), s.ExponentialLR(optimizer, 0.9)], [2]),
        s.ChainedScheduler([s.ConstantLR(optimizer), s.ExponentialLR(optimizer, 0.9)]),
        torch.optim.swa_utils.SWALR(optimizer, 0.05),
    ]


@pytest.mark.parametrize("number", range(16))
def test_schedulers(trip, number):
    def make():
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1, momentum=0.9)
        return optimizer, schedulers(optimizer)[number]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optimizer, scheduler = make()
        arguments = (1.0,) if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau) else ()
        for _ in range(3):
            optimizer.step()
            scheduler.step(*arguments)
        state = scheduler.state_dict()
        found = trip(state)
        assert_same(found, state)
        _, resumed = make()
        resumed.load_state_dict(found)
        assert resumed.last_epoch == scheduler.last_epoch if hasattr(scheduler, "last_epoch") else True


def test_scaler_and_generators(trip):
    scaler = torch.amp.GradScaler("cpu", init_scale=512.0)
    generator = torch.Generator().manual_seed(7)
    found = trip({"scaler": scaler.state_dict(), "torch": torch.get_rng_state(), "generator": generator.get_state()})
    assert found["scaler"] == scaler.state_dict()
    expected = torch.rand(3, generator=generator)
    assert torch.equal(torch.rand(3, generator=torch.Generator().set_state(found["generator"])), expected)


class Wrapped(torch.Tensor):
    pass


REFUSED = {
    "meta": (lambda: torch.empty(2, device="meta"), "meta"),
    "sparse": (lambda: torch.eye(3).to_sparse(), "sparse"),
    "subclass": (lambda: torch.ones(2).as_subclass(Wrapped), "its class would be lost"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_saved_is_named(tmp_path, kind):
    make, words = REFUSED[kind]
    with pytest.raises(InvalidArgument, match=rf"'model\.w' is a .*{words}"):
        save_state(tmp_path / "s", {"model": {"w": make()}})
    assert not (tmp_path / "s").exists()


def test_versions_of_modules_are_kept(trip):
    state = torch.nn.BatchNorm1d(3).state_dict()
    assert trip({"model": state})["model"]._metadata == state._metadata


def test_inference_mode(trip):
    with torch.inference_mode():
        found = trip({"w": torch.ones(3)})
    assert torch.equal(found["w"], torch.ones(3))

"""Files from Burn to PyTorch and from PyTorch to Burn, checked by running the models. `make interop-burn` runs this.

Burn is two programs in this folder, one for each release, that cargo builds. Where there is no cargo, everything is skipped.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from torch import nn

import weightstore
from support import burn_options
from support.burn_differences import compare
from weightstore import (
    BurnpackStore,
    BurnToPyTorchAdapter,
    PyTorchToBurnAdapter,
    SafetensorsStore,
    load_from,
    save_into,
)

HERE = Path(__file__).parent
BUILT = HERE.parents[2] / "build" / "interop-burn"
RELEASES = ("0.20", "0.22")


@pytest.fixture(scope="session")
def programs() -> Path:
    cargo = shutil.which("cargo")
    if cargo is None:
        pytest.skip("cargo is not installed: the programs of Burn cannot be built")
    build = [cargo, "build", "--locked", "--manifest-path", str(HERE / "Cargo.toml")]
    subprocess.run(build, check=True, env={**os.environ, "CARGO_TARGET_DIR": str(BUILT)})
    return BUILT / "debug"


@pytest.fixture(params=RELEASES)
def release(request) -> str:
    return request.param


@pytest.fixture
def burn(programs, release):
    """Runs the program of a release."""
    return lambda *args: run(programs, release, *args)


def run(programs: Path, release: str, *args: object) -> None:
    program = programs / f"interop-burn-v{release.removeprefix('0.')}"
    ended = subprocess.run([program, *map(str, args)], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


# ---- the models --------------------------------------------------------------------------------------------------------


def wave(*shape: int) -> torch.Tensor:
    count = torch.Size(shape).numel()
    return torch.sin(0.37 * torch.arange(count, dtype=torch.float64)).float().reshape(shape)


class Layers(nn.Module):
    """As Burn's model of the same name."""

    def __init__(self, release):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.bn = nn.BatchNorm2d(4)
        self.inst = nn.InstanceNorm2d(4, affine=True)
        self.act = nn.PReLU(4)
        self.gn = nn.GroupNorm(2, 4)
        self.fc = nn.Linear(144, 16)
        self.norm = nn.LayerNorm(16)
        self.rms = nn.RMSNorm(16, eps=1e-5)
        self.out = nn.Linear(16, 5, bias=False)

    def forward(self):
        x = self.inst(self.bn(self.conv(wave(2, 1, 8, 8))))
        x = self.gn(self.act(x)).flatten(1)
        return self.out(self.rms(self.norm(self.fc(x).relu())))


class Sequences(nn.Module):
    """As Burn's model of the same name: layers whose matrices PyTorch packs into one."""

    def __init__(self, release):
        super().__init__()
        self.emb = nn.Embedding(11, 6)
        self.lstm = nn.LSTM(6, 8, batch_first=True)
        self.both = nn.LSTM(8, 4, batch_first=True, bidirectional=True)
        self.stack = nn.LSTM(8, 8, num_layers=2, batch_first=True)
        self.gru = nn.GRU(8, 8, batch_first=True)
        if release != "0.20":  # which has no BiGru
            self.pair = nn.GRU(8, 4, batch_first=True, bidirectional=True, bias=False)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self):
        x = self.emb(torch.tensor([[1, 4, 0, 10, 7], [2, 2, 9, 3, 5]]))
        for layer in (self.lstm, self.both, self.stack, self.gru, getattr(self, "pair", None)):
            x = x if layer is None else layer(x)[0]
        return self.head(self.attention(x, x, x)[0])


MODELS = {"layers": Layers, "sequences": Sequences}


def shaken(model: nn.Module) -> nn.Module:
    """With random values, also where PyTorch begins with zeros and ones."""
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if not name.endswith("num_batches_tracked"):
                tensor += torch.empty_like(tensor).uniform_(-0.2, 0.3)
    return model.eval()


def outputs(model: nn.Module) -> list[float]:
    with torch.no_grad():
        return model.eval()().flatten().tolist()


def check_outputs(found: list[float], file: Path) -> None:
    assert found == pytest.approx(json.loads(file.read_text()), rel=0, abs=1e-5)


# ---- there and back ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_from_burn_to_torch(burn, release, name, tmp_path):
    burn("write", tmp_path)
    model = MODELS[name](release)
    result = load_from(model, BurnpackStore.from_file(tmp_path / name).with_from_adapter(BurnToPyTorchAdapter()))
    assert result.unused == []
    check_outputs(outputs(model), tmp_path / f"{name}.json")
    # And written again: the same names, values and ids.
    save_into(model, BurnpackStore.from_file(tmp_path / "again").with_to_adapter(PyTorchToBurnAdapter()))
    check_same(tmp_path / f"{name}.bpk", tmp_path / "again.bpk", ids=True)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kind", [BurnpackStore, SafetensorsStore])
def test_from_torch_to_burn(burn, release, name, kind, tmp_path):
    model = shaken(MODELS[name](release))
    path = tmp_path / ("model.bpk" if kind is BurnpackStore else "model.safetensors")
    save_into(model, kind.from_file(path).with_to_adapter(PyTorchToBurnAdapter()))
    burn("run", name, path)
    check_outputs(outputs(model), tmp_path / f"{path.name}.json")
    check_same(path, tmp_path / f"{path.name}.back.bpk", ids=kind is BurnpackStore and release == "0.22")


def check_same(one: Path, other: Path, *, ids: bool) -> None:
    with weightstore.open(one) as expected, weightstore.open(other) as found:
        assert sorted(expected) == sorted(found)
        for name in expected:
            assert expected[name].shape == found[name].shape, name
            assert expected[name].bytes() == found[name].bytes(), name
            if ids and not name.rpartition(".")[2].startswith("running_"):  # Burn never takes those from a file
                assert expected[name].param_id == found[name].param_id, name


# ---- options of stores -------------------------------------------------------------------------------------------------


def answers_of_burn(programs: Path, folder: Path, configurations: list[dict]) -> dict[str, dict]:
    (folder / "configurations.json").write_text(json.dumps(configurations))
    run(programs, "0.22", "options", folder / "configurations.json", folder / "answers.json")
    return json.loads((folder / "answers.json").read_text())


def test_what_burn_says_about_options(programs, tmp_path):
    """The data of tests/python/stores/test_burn_options.py is still what Burn says."""
    burn_options.make_files(tmp_path)
    configurations = burn_options.configurations()
    answers = answers_of_burn(programs, tmp_path, configurations)
    for config in configurations:
        found = answers[config["id"]]
        if "error" in config["burn"]:
            assert "error" in found, config
        else:
            assert {key: sorted(value) for key, value in found.items()} == config["burn"], config


@pytest.mark.parametrize("seed", range(3))
def test_random_options(programs, tmp_path, seed):
    burn_options.make_files(tmp_path)
    configurations = burn_options.random_configurations(300, seed)
    answers = answers_of_burn(programs, tmp_path, configurations)
    for config in configurations:
        ours = burn_options.outcome(config, tmp_path)
        assert compare(config, answers[config["id"]], ours) in (None, "a filter that matches nothing"), config


# ---- training that goes on in the other framework ----------------------------------------------------------------------


class Small(nn.Module):
    """As Burn's model of the same name."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 4)
        self.norm = nn.LayerNorm(4)
        self.out = nn.Linear(4, 2)

    def forward(self):
        return self.out(self.norm(self.fc(wave(4, 3))).relu())


OPTIMIZERS = {
    "adam": lambda parameters: torch.optim.Adam(parameters, 1e-2),
    "adam-decay": lambda parameters: torch.optim.Adam(parameters, 1e-2, weight_decay=0.1),
    "adam-amsgrad": lambda parameters: torch.optim.Adam(parameters, 1e-2, amsgrad=True),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, 1e-2, weight_decay=0.1),
}


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    (model() ** 2).sum().backward()
    optimizer.step()


def check_model(model: nn.Module, path: Path) -> None:
    expected = Small()
    load_from(expected, BurnpackStore.from_file(path).with_from_adapter(BurnToPyTorchAdapter()))
    for name, value in expected.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], value, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_training_goes_on_in_torch(programs, kind, tmp_path):
    run(programs, "0.22", "train", "begin", kind, tmp_path)
    model = Small()
    optimizer = OPTIMIZERS[kind](model.parameters())
    load_from(model, BurnpackStore.from_file(tmp_path / "model").with_from_adapter(BurnToPyTorchAdapter()))
    record = BurnpackStore.from_file(tmp_path / "optimizer").with_from_adapter(BurnToPyTorchAdapter())
    assert record.apply_optimizer(optimizer, model).unused == []
    # Written again, the record is the same.
    again = BurnpackStore.from_file(tmp_path / "again").with_to_adapter(PyTorchToBurnAdapter())
    again.collect_optimizer(optimizer, model)
    check_same(tmp_path / "optimizer.bpk", tmp_path / "again.bpk", ids=True)
    assert again.get_scalars() == record.get_scalars()
    assert again.get_metadata() == record.get_metadata()
    step(model, optimizer)
    check_model(model, tmp_path / "next.bpk")


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_training_goes_on_in_burn(programs, kind, tmp_path):
    model = Small()
    optimizer = OPTIMIZERS[kind](model.parameters())
    for _ in range(3):
        step(model, optimizer)
    save_into(model, BurnpackStore.from_file(tmp_path / "model").with_to_adapter(PyTorchToBurnAdapter()))
    store = BurnpackStore.from_file(tmp_path / "optimizer").with_to_adapter(PyTorchToBurnAdapter())
    store.collect_optimizer(optimizer, model)
    run(programs, "0.22", "train", "go-on", kind, tmp_path)
    step(model, optimizer)
    check_model(model, tmp_path / "next.bpk")
    # The states after the step are equal, too.
    back = OPTIMIZERS[kind](model.parameters())
    record = BurnpackStore.from_file(tmp_path / "optimizer_next").with_from_adapter(BurnToPyTorchAdapter())
    record.apply_optimizer(back, model)
    for parameter, state in optimizer.state.items():
        assert state.keys() == back.state[parameter].keys()
        for name, value in state.items():
            torch.testing.assert_close(back.state[parameter][name], value, rtol=1e-5, atol=1e-7)

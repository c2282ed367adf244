"""A model that Burn trained and saved, as the equivalent PyTorch module: outputs against numpy, by hand."""

from __future__ import annotations

import numpy as np
import pytest

import weightstore
from weightstore import BurnpackStore, BurnToPyTorchAdapter, PyTorchToBurnAdapter, SafetensorsStore, errors, param_ids

torch = pytest.importorskip("torch")
nn = torch.nn


class ConvBlock(nn.Module):
    def __init__(self, channels_in, channels_out):
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels_out, 3)
        self.norm = nn.BatchNorm2d(channels_out)

    def forward(self, x):
        return torch.nn.functional.gelu(self.norm(self.conv(x)))


class Mnist(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = ConvBlock(1, 64), ConvBlock(64, 64)
        self.fc1, self.fc2, self.fc3 = nn.Linear(1600, 128), nn.Linear(128, 128), nn.Linear(128, 10)

    def forward(self, x):
        for block in (self.conv1, self.conv2):
            x = torch.nn.functional.max_pool2d(block(x), 2)
        x = x.flatten(1)
        return self.fc3(torch.relu(self.fc2(torch.relu(self.fc1(x)))))


def by_hand(tensors, x):
    """The same in float64, from the file's own names and layouts."""
    from math import erf

    t = {name: array.astype(np.float64) for name, array in tensors.items()}
    for block in ("conv1", "conv2"):
        weight = t[f"{block}.conv.weight"]
        height, width = x.shape[2] - 2, x.shape[3] - 2
        windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))
        x = np.einsum("nchwij,ocij->nohw", windows, weight) + t[f"{block}.conv.bias"][:, None, None]
        assert x.shape[2:] == (height, width)
        deviation = np.sqrt(t[f"{block}.norm.running_var"] + 1e-5)[:, None, None]
        x = (x - t[f"{block}.norm.running_mean"][:, None, None]) / deviation
        x = x * t[f"{block}.norm.gamma"][:, None, None] + t[f"{block}.norm.beta"][:, None, None]
        x = x * 0.5 * (1 + np.vectorize(erf)(x / np.sqrt(2)))
        x = x[:, :, : height // 2 * 2, : width // 2 * 2]
        x = x.reshape(*x.shape[:2], height // 2, 2, width // 2, 2).max((3, 5))
    x = x.reshape(len(x), -1)
    for layer in ("fc1", "fc2", "fc3"):
        x = x @ t[f"{layer}.weight"] + t[f"{layer}.bias"]
        x = np.maximum(x, 0) if layer != "fc3" else x
    return x


@pytest.fixture(scope="module")
def path(testdata):
    return testdata / "fixtures" / "burnpack" / "mnist.bpk"


def test_outputs_are_those_computed_by_hand(path):
    with torch.device("meta"):
        model = Mnist()
    store = BurnpackStore.from_file(path).with_from_adapter(BurnToPyTorchAdapter())
    result = store.apply_to(model)
    assert len(result.applied) == 18
    assert (result.missing, result.unused, result.errors, result.skipped) == ([], [], [], [])
    assert model.conv1.norm.num_batches_tracked.device.type == "meta"
    model.conv1.norm.num_batches_tracked = model.conv2.norm.num_batches_tracked = torch.tensor(0)

    images = np.random.default_rng(0).random((3, 1, 28, 28), dtype=np.float32)
    with torch.no_grad():
        outputs = model.eval()(torch.from_numpy(images)).numpy()
    with weightstore.open(path) as file:
        expected = by_hand(file.load(), images.astype(np.float64))
    assert np.abs(expected).max() > 1
    np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=1e-4)


def test_without_the_adapter_it_does_not_fit(path):
    model = Mnist()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(errors.ValidationError, match=r"fc1\.weight.*\[1600, 128\]") as caught:
        BurnpackStore.from_file(path).apply_to(model)
    assert isinstance(caught.value, errors.BurnpackError)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_it_goes_back_to_burn_byte_for_byte(path, tmp_path):
    model = Mnist()
    BurnpackStore.from_file(path).with_from_adapter(BurnToPyTorchAdapter()).apply_to(model)
    assert param_ids(model)["conv1.conv.bias"] == 9505838338724798577
    assert param_ids(model)["fc3.weight"] == 9562590261885004638
    # Burn's order: weights before biases, as torch has them.
    store = BurnpackStore.from_file(tmp_path / "again.bpk").clear_metadata().with_to_adapter(PyTorchToBurnAdapter())
    store.collect_from(model)
    assert (tmp_path / "again.bpk").read_bytes() == path.read_bytes()


def test_the_reference_outputs_of_a_safetensors_file(testdata):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1, self.norm1, self.fc1 = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Linear(256, 16)

        def forward(self, x):
            return self.fc1(torch.relu(self.norm1(self.conv1(x))).flatten(1))

    # What Burn computes from this file, for an image of ones.
    expected = [0.04971555, -0.16849735, 0.05182848, -0.18032673, 0.23138367, 0.05041867, 0.13005908, -0.32202929]
    expected += [-0.07915690, -0.03232457, -0.19790289, -0.17476529, -0.19627589, -0.21757686, -0.31376451, 0.08377837]
    net = Net()
    store = SafetensorsStore.from_file(testdata / "fixtures" / "safetensors" / "multi_layer.safetensors")
    assert len(store.apply_to(net).applied) == 9
    with torch.no_grad():
        outputs = net.eval()(torch.ones(1, 3, 8, 8))[0]
    np.testing.assert_allclose(outputs.numpy(), expected, atol=1e-6)
    again = SafetensorsStore.from_bytes(None)
    again.collect_from(net)
    other = Net()
    again.apply_to(other)
    with torch.no_grad():
        assert torch.equal(other.eval()(torch.ones(1, 3, 8, 8))[0], outputs)

from __future__ import annotations

import pytest
import torch

from support.offloaded_nets import INPUT, Net
from weightstore.torch import save_model


@pytest.fixture
def saved(tmp_path):
    torch.manual_seed(1)
    net = Net().eval()
    path = tmp_path / "net.safetensors"
    save_model(net, path)
    with torch.no_grad():
        return path, net(INPUT)

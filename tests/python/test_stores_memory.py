"""How much memory loading into a module takes: under a limit that a second copy of the model would exceed."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("torch")

# Eight matrices of 16 MiB. Arguments: folder, kind of store, device of the target.
LOAD = """
import resource, sys
import torch
import weightstore
from weightstore import load_from, save_into

folder, kind, device = sys.argv[1:]
store = getattr(weightstore, kind).from_file(folder + "/model.x").durable(False)
torch.manual_seed(0)
model = torch.nn.Sequential(*(torch.nn.Linear(2048, 2048, bias=False) for _ in range(8)))
save_into(model, store)
sums = [layer.weight.double().sum().item() for layer in model]
# Whatever a first load sets up (threads, buffers) is not the model's.
load_from(model, store)
if device == "meta":
    del model
    with torch.device("meta"):
        model = torch.nn.Sequential(*(torch.nn.Linear(2048, 2048, bias=False) for _ in range(8)))
else:
    for layer in model:
        torch.nn.init.zeros_(layer.weight)
store = getattr(weightstore, kind).from_file(folder + "/model.x")
tensor = 16 << 20
allowed = (9 if device == "meta" else 1) * tensor + (32 << 20)
with open("/proc/self/status") as status:
    used = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmData"))
resource.setrlimit(resource.RLIMIT_DATA, (used + allowed, resource.RLIM_INFINITY))
try:
    bytearray(allowed + tensor)
except MemoryError:
    pass
else:
    sys.exit("the limit does not limit")
load_from(model, store)
assert [layer.weight.double().sum().item() for layer in model] == sums
"""


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("kind", ["SafetensorsStore", "BurnpackStore"])
def test_loading_needs_no_second_model(tmp_path, kind, device):
    child = subprocess.run([sys.executable, "-c", LOAD, str(tmp_path), kind, device], capture_output=True, text=True)
    assert child.returncode == 0, child.stderr

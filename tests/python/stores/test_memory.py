"""How much memory saving and loading take: under a limit that a second copy would exceed."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("torch")

LIMIT = """
import resource, sys

def limit(allowed):
    with open("/proc/self/status") as status:
        used = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmData"))
    resource.setrlimit(resource.RLIMIT_DATA, (used + allowed, resource.RLIM_INFINITY))
    try:
        bytearray(allowed + (16 << 20))
    except MemoryError:
        return
    sys.exit("the limit does not limit")
"""

# Eight matrices of 16 MiB. Arguments: folder, kind of store, device of the target.
LOAD = """
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
limit((9 if device == "meta" else 1) * tensor + (32 << 20))
load_from(model, store)
assert [layer.weight.double().sum().item() for layer in model] == sums
"""


# A matrix of 64 MiB, transposed and halved on its way. Arguments: folder.
CHAIN = """
import torch
import weightstore
from weightstore import HalfPrecisionAdapter, PyTorchToBurnAdapter, SafetensorsStore, save_into

def store(name):
    chain = PyTorchToBurnAdapter().chain(HalfPrecisionAdapter())
    return SafetensorsStore.from_file(sys.argv[1] + name).durable(False).with_to_adapter(chain)

save_into(torch.nn.Linear(1024, 1024, bias=False), store("/first"))
layer = torch.nn.Linear(4096, 4096, bias=False)
limit(48 << 20)
save_into(layer, store("/second"))
resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
(saved,) = weightstore.open(sys.argv[1] + "/second").values()
assert torch.equal(saved.torch(), layer.weight.detach().t().half())
"""

# A packed matrix of 192 MiB, split while it is saved and joined while it is loaded. Arguments: folder.
PACKED = """
import torch
from weightstore import BurnpackStore, BurnToPyTorchAdapter, PyTorchToBurnAdapter, load_from, save_into

def store(name):
    made = BurnpackStore.from_file(sys.argv[1] + name).durable(False)
    return made.with_to_adapter(PyTorchToBurnAdapter()).with_from_adapter(BurnToPyTorchAdapter())

small = torch.nn.MultiheadAttention(64, 1)
save_into(small, store("/first"))
load_from(small, store("/first"))
large = torch.nn.MultiheadAttention(4096, 1)
expected = large.in_proj_weight.double().sum().item()
limit(48 << 20)
save_into(large, store("/second"))
torch.nn.init.zeros_(large.in_proj_weight)
load_from(large, store("/second"))
resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert large.in_proj_weight.double().sum().item() == expected
"""


def run(script, *arguments):
    child = subprocess.run([sys.executable, "-c", LIMIT + script, *arguments], capture_output=True, text=True)
    assert child.returncode == 0, child.stderr


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("kind", ["SafetensorsStore", "BurnpackStore"])
def test_loading_needs_no_second_model(tmp_path, kind, device):
    run(LOAD, str(tmp_path), kind, device)


def test_a_chain_of_adapters_holds_no_copy_in_between(tmp_path):
    run(CHAIN, str(tmp_path))


def test_packed_layers_are_split_and_joined_without_a_copy(tmp_path):
    run(PACKED, str(tmp_path))

"""A training run that can be killed at any moment: start it again, and it goes on. On any number of processes:

python examples/train.py RUN STEPS, or torchrun --nproc-per-node 2 examples/train.py RUN STEPS
"""

import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import weightstore

directory, steps = sys.argv[1], int(sys.argv[2])
rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
if world > 1:
    dist.init_process_group("gloo")

torch.manual_seed(0)  # the same weights on all ranks
model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Dropout(0.1), torch.nn.Linear(64, 1))
network = DistributedDataParallel(model) if world > 1 else model
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
torch.manual_seed(1 + rank)  # other data on each

state = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "rng": True}
with weightstore.CheckpointManager(directory, max_to_keep=3, best="loss", save_every=5, sigterm=True) as manager:
    restored = manager.restore(state)
    for step in range(restored.step + 1 if restored else 1, steps + 1):
        inputs = torch.randn(32, 16)
        loss = (network(inputs) - inputs.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if manager.should_save(step) or step == steps:
            manager.save(step, state, {"loss": loss})
            if manager.preempted:
                break
        print(f"rank {rank} of {world}: step {step}, loss {loss.item():.4f}", flush=True)
if world > 1:
    dist.destroy_process_group()

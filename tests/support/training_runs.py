"""A small training run, whose state can be compared bit for bit."""

from __future__ import annotations

from typing import Any

import torch

from weightstore import CheckpointManager


class Training:
    """A model with batch norm, AdamW and a scheduler; each step draws random numbers."""

    def __init__(self, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, T_max=50)

    def step(self) -> float:
        self.optimizer.zero_grad()
        loss = self.model(torch.randn(6, 4)).square().sum()
        loss.backward()
        self.optimizer.step()
        self.scheduler.step()
        return loss.item()

    def state(self, **more: Any) -> dict[str, Any]:
        return {
            "model": self.model,
            "optimizer": self.optimizer,
            "scheduler": self.scheduler,
            "rng": True,
            **more,
        }

    def values(self) -> list[Any]:
        """Everything that decides how the run goes on."""
        moments = [value.clone() for each in self.optimizer.state_dict()["state"].values() for value in each.values()]
        weights = [value.clone() for value in self.model.state_dict().values()]
        return [
            *weights,
            *moments,
            self.optimizer.param_groups[0]["lr"],
            self.scheduler.last_epoch,
            torch.get_rng_state(),
        ]


def equal(a: list[Any], b: list[Any]) -> bool:
    return len(a) == len(b) and all(
        torch.equal(x, y) if isinstance(x, torch.Tensor) else x == y for x, y in zip(a, b, strict=True)
    )


def saved_run(directory: Any, steps: int, **options: Any) -> tuple[Training, dict[int, list[Any]]]:
    """A run that saved each of its steps, and what its values were."""
    training, values = Training(), {}
    with CheckpointManager(directory, **{"max_to_keep": None, **options}) as manager:
        for step in range(1, steps + 1):
            loss = training.step()
            values[step] = training.values()
            manager.save(step, training.state(epoch=step), {"loss": loss})
    return training, values

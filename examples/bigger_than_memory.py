"""Runs a model that is larger than its budget of memory, and shows where the time goes.

    python examples/bigger_than_memory.py [--mb 512] [--budget 0.5] [--passes 6] [--plot timeline.png]

Prints the share of the time that was spent waiting, the share of weights that were in memory, and the physical limit: the
larger of the time to compute, and the time to read what the budget does not hold. Draws a timeline if matplotlib is installed.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import torch

import weightstore
from weightstore.torch import save_file

LAYERS = 128


class Stack(torch.nn.Module):
    """Layers that are used one after the other."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(width, width, bias=False) for _ in range(LAYERS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x


def write_model(path: Path, width: int) -> None:
    weights = {f"layers.{i}.weight": torch.randn(width, width) / width**0.5 for i in range(LAYERS)}
    save_file(weights, path)


def read_rate(path: Path) -> float:
    """Bytes per second of plain reads that bypass the page cache, where the file system allows it."""
    pager = weightstore.Pager(path, "64MB", direct=True, readers=2)
    start = time.perf_counter()
    for slot in range(len(pager)):
        pager.acquire(slot).release()
    rate: float = pager.stats()["bytes_read"] / (time.perf_counter() - start)
    pager.close()
    return rate


class Timeline:
    """Which layers are resident, and how much has been read, a hundred times a second; and when each layer ran."""

    def __init__(self, handle: weightstore.OffloadedModule) -> None:
        self.samples: list[tuple[float, int, list[bool]]] = []
        self.runs: list[tuple[float, float, int]] = []
        self._handle = handle
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def _watch(self) -> None:
        pager = self._handle.pager
        while not self._done.wait(0.01):
            resident = [pager.is_resident(f"layers.{i}.weight") for i in range(LAYERS)]
            self.samples.append((time.perf_counter(), pager.stats()["bytes_read"], resident))

    def __enter__(self) -> Timeline:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def draw(self, target: Path) -> str:
        try:
            import matplotlib
        except ImportError:
            return "matplotlib is not installed: no timeline was drawn"
        matplotlib.use("Agg")
        from matplotlib import pyplot

        start = self.samples[0][0]
        times = [at - start for at, _, _ in self.samples]
        figure, (top, bottom) = pyplot.subplots(2, 1, sharex=True, figsize=(9, 6), height_ratios=(3, 1))
        grid = list(map(list, zip(*(resident for _, _, resident in self.samples), strict=True)))
        top.imshow(grid, aspect="auto", origin="lower", cmap="Blues", extent=(times[0], times[-1], 0, LAYERS), vmax=2)
        top.plot([begin - start for begin, _, _ in self.runs], [i for _, _, i in self.runs], "r.", markersize=2)
        top.set_ylabel("layer (blue: in memory, red: runs)")
        read = [count / 1e6 for _, count, _ in self.samples]
        bottom.plot(times, read)
        bottom.set_ylabel("MB read")
        bottom.set_xlabel("seconds")
        figure.tight_layout()
        figure.savefig(target, dpi=100)
        return f"the timeline is in {target}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=512, help="size of the model (512)")
    parser.add_argument("--budget", type=float, default=0.5, help="share of the model that may be in memory (0.5)")
    parser.add_argument("--passes", type=int, default=6)
    parser.add_argument("--policy", default="cyclic", choices=["cyclic", "lru"])
    parser.add_argument("--plot", type=Path, default=Path("bigger_than_memory.png"))
    parser.add_argument("--dir", type=Path, help="where to write the model")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    width = int((arguments.mb * 1e6 / LAYERS / 4) ** 0.5)
    with tempfile.TemporaryDirectory(dir=arguments.dir) as directory:
        path = Path(directory) / "model.safetensors"
        write_model(path, width)
        model_bytes = os.path.getsize(path)
        rate = read_rate(path)
        with weightstore.empty_weights():
            model = Stack(width).eval()
        run(model, path, int(model_bytes * arguments.budget), rate, arguments)


def run(model: Stack, path: Path, budget: int, rate: float, arguments: Any) -> None:
    x = torch.randn(1, model.layers[0].in_features)
    with weightstore.offload_module(model, path, budget=budget, policy=arguments.policy) as handle, torch.no_grad():
        for _ in range(2):
            model(x)  # the policy learns the order
        before = handle.pager.stats()
        with Timeline(handle) as timeline:
            for i, layer in enumerate(model.layers):
                layer.register_forward_pre_hook(lambda *_, i=i: timeline.runs.append((time.perf_counter(), 0.0, i)))
            start = time.perf_counter()
            for _ in range(arguments.passes):
                model(x)
            seconds = (time.perf_counter() - start) / arguments.passes
        after = handle.pager.stats()
        stats = {
            name: after[name] - before[name] for name in ("hits", "misses", "coalesced_waits", "wait_ns", "bytes_read")
        }
        size = path.stat().st_size
        acquires = stats["hits"] + stats["misses"] + stats["coalesced_waits"]
        waited = stats["wait_ns"] / 1e9 / arguments.passes
        bound = max(seconds - waited, (size - budget) / rate)
        print(f"model {size / 1e6:.0f} MB, budget {budget / 1e6:.0f} MB, reads at {rate / 1e9:.2f} GB/s")
        print(f"a pass: {1e3 * seconds:.0f} ms, of which {waited / seconds:.0%} waiting for weights")
        print(f"in memory when needed: {stats['hits'] / acquires:.0%} of the weights")
        print(
            f"read in a pass: {stats['bytes_read'] / arguments.passes / 1e6:.0f} MB; at least {(size - budget) / 1e6:.0f} MB"
        )
        print(f"the bound, max(compute, reading): {1e3 * bound:.0f} ms; this run takes {seconds / bound:.2f} x that")
        print(handle.report())
        print(timeline.draw(arguments.plot))


if __name__ == "__main__":
    main()

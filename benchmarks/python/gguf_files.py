"""GGUF files: opening, dequantizing and reading, beside the Python package gguf and a plain copy.

    python benchmarks/python/gguf_files.py [rounds]

All sides run in turns, in one process. The figures are medians of the ratios of each round. Copies are made in new memory. So
are results that are kept; one that is dropped leaves its memory to the next one, as when a program goes through a model.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gguf
import numpy as np

import weightstore
import weightstore.numpy

ROWS, COLUMNS = 4096, 4096
# Where the F16 numbers of a block are.
SCALES: dict[str, tuple[int, ...]] = {
    "Q4_K": (0, 2), "Q6_K": (208,), "Q8_0": (0,), "Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q2_K": (80, 82),
    "Q3_K": (108,), "Q5_K": (0, 2), "IQ4_NL": (0,), "IQ4_XS": (0,), "TQ1_0": (52,), "TQ2_0": (64,), "MXFP4": (), "NVFP4": (),
}  # fmt: skip
THREADS = 2


def seconds(work: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def in_turns(rounds: int, **sides: Callable[[], Any]) -> dict[str, list[float]]:
    """The seconds of each side in each round. Every round begins with another side, because a side finds the caches and the
    allocator as the one before left them. A round before the first is not counted."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    names = list(sides)
    for i in range(rounds + 1):
        for name in (*names[i % len(names) :], *names[: i % len(names)]):
            taken = seconds(sides[name])
            if i:
                times[name].append(taken)
    return times


def ratio(times: dict[str, list[float]], slower: str, faster: str) -> float:
    return statistics.median(a / b for a, b in zip(times[slower], times[faster], strict=True))


def vocabulary(path: Path) -> None:
    """1,000 tensors and 128,000 tokens with scores and types."""
    count = 128_000
    metadata = {
        "general.architecture": "llama",
        "tokenizer.ggml.tokens": [f"token_{i}" for i in range(count)],
        "tokenizer.ggml.scores": np.arange(count, dtype=np.float32),
        "tokenizer.ggml.token_type": np.ones(count, np.int32),
    }
    tensors = {f"blk.{i // 10}.part_{i % 10}.weight": np.zeros((4, 32), np.float32) for i in range(1000)}
    weightstore.numpy.save_file(tensors, path, metadata)


def payload(kind: str) -> np.ndarray[Any, Any]:
    """Blocks of any codes, whose scales are finite."""
    elements, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    blocks = np.random.default_rng(0).integers(0, 256, (ROWS * COLUMNS // elements, size), np.uint8)
    for at in SCALES[kind]:
        blocks[:, at + 1] &= 0x3B
    if kind == "MXFP4":
        blocks[:, 0] = 120 + blocks[:, 0] % 16
    return blocks.reshape(ROWS, -1)


def copied(pool: ThreadPoolExecutor, source: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A copy in new memory, by as many threads as there are processors."""
    target = np.empty_like(source)
    cut = len(source) // THREADS
    list(
        pool.map(lambda i: np.copyto(target[i * cut : (i + 1) * cut], source[i * cut : (i + 1) * cut]), range(THREADS))
    )
    return target


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory() as directory, ThreadPoolExecutor(THREADS) as pool:
        path = Path(directory) / "vocabulary.gguf"
        vocabulary(path)
        times = in_turns(rounds, ours=lambda: weightstore.open(path).close(), gguf=lambda: gguf.GGUFReader(path))
        print(
            f"open, 1,000 tensors and 128,000 tokens: {statistics.median(times['ours']) * 1e3:.2f} ms, "
            f"gguf.GGUFReader {statistics.median(times['gguf']) * 1e3:.0f} ms, {ratio(times, 'gguf', 'ours'):.0f} times as fast"
        )
        for kind in SCALES:
            dequantizing(Path(directory), kind, rounds, pool)


def dequantizing(directory: Path, kind: str, rounds: int, pool: ThreadPoolExecutor) -> None:
    rows = payload(kind)
    model, plain = directory / "model.gguf", directory / "plain.safetensors"
    weightstore.numpy.save_file({"w": weightstore.DeferredTensor(kind, (ROWS, COLUMNS), lambda: rows.tobytes())}, model)
    weightstore.numpy.save_file({"w": rows}, plain)
    number = gguf.GGMLQuantizationType[kind]
    with weightstore.open(model) as quantized, weightstore.open(plain) as other:
        result = quantized["w"].dequantize().numpy()
        assert np.array_equal(result, gguf.quants.dequantize(rows, number))
        times = in_turns(
            rounds,
            ours=lambda: quantized["w"].dequantize().numpy(),
            half=lambda: quantized["w"].dequantize("F16").numpy(),
            copy=lambda: copied(pool, result),
            gguf=lambda: gguf.quants.dequantize(rows, number),
            read=lambda: quantized["w"].bytes(),
            read_plain=lambda: other["w"].bytes(),
        )
        # By themselves: a result that is dropped would leave its memory to one that is kept.
        kept: list[object] = []
        new = in_turns(
            rounds,
            kept=lambda: kept.append(quantized["w"].dequantize().numpy()),
            copy=lambda: copied(pool, result),
            gguf=lambda: gguf.quants.dequantize(rows, number),
        )
    rate = result.nbytes / statistics.median(times["ours"]) / 1e9
    print(
        f"{kind}: {rate:.1f} GB/s of F32, {100 * ratio(times, 'copy', 'ours'):.0f} % of the rate of a copy, "
        f"{ratio(times, 'gguf', 'ours'):.0f} times gguf.quants.dequantize; if results are kept "
        f"{100 * ratio(new, 'copy', 'kept'):.0f} % and {ratio(new, 'gguf', 'kept'):.0f} times; F16 in "
        f"{100 * ratio(times, 'half', 'ours'):.0f} % of the time; its bytes "
        f"{100 * ratio(times, 'read_plain', 'read'):.0f} % of the rate of SafeTensors"
    )


if __name__ == "__main__":
    main()

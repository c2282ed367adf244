"""What policies of eviction read on traces of mixtures of experts, beside the least that any policy can read (Belady).

A simulation, without files. One unit is one expert: `layers` times `experts`, of which a router chooses `top` a layer and token.
Some of the choices are those of the last token; the others are drawn with popularities of a Zipf law, a different order of
experts in each layer. The LRU row is also replayed on a real Pager, which must read exactly as much.
"""

from __future__ import annotations

import argparse
import heapq
import random
import sys
from collections import OrderedDict, deque
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path

if __package__ in (None, ""):  # run as a file
    sys.path[0] = str(Path(__file__).resolve().parents[2])

Trace = list[int]


def moe_trace(layers: int, experts: int, top: int, tokens: int, *, reuse: float, zipf: float, seed: int = 0) -> Trace:
    """Numbers of experts, in the order of their use."""
    rng = random.Random(seed)
    weights = list(accumulate((i + 1) ** -zipf for i in range(experts)))
    orders = [rng.sample(range(experts), experts) for _ in range(layers)]
    last = [rng.sample(range(experts), top) for _ in range(layers)]
    trace = []
    for _ in range(tokens):
        for layer in range(layers):
            chosen = {expert for expert in last[layer] if rng.random() < reuse}
            while len(chosen) < top:
                chosen.add(orders[layer][rng.choices(range(experts), cum_weights=weights)[0]])
            last[layer] = sorted(chosen)
            trace += [layer * experts + expert for expert in last[layer]]
    return trace


def lru(trace: Trace, fits: int) -> int:
    resident: OrderedDict[int, None] = OrderedDict()
    misses = 0
    for item in trace:
        if item in resident:
            resident.move_to_end(item)
            continue
        misses += 1
        if len(resident) == fits:
            resident.popitem(last=False)
        resident[item] = None
    return misses


def lru_of_each_layer(trace: Trace, fits: int, experts: int) -> int:
    """Every layer has the same share of the room (as Mixtral-offloading has it)."""
    layers = max(trace) // experts + 1
    by_layer: list[Trace] = [[] for _ in range(layers)]
    for item in trace:
        by_layer[item // experts].append(item)
    return sum(lru(part, fits // layers) for part in by_layer)


def frequency(trace: Trace, fits: int) -> int:
    """Evicts what was used least often so far, of these what was used the longest ago."""
    uses: dict[int, int] = {}
    resident: dict[int, tuple[int, int]] = {}
    heap: list[tuple[int, int, int]] = []
    misses = 0
    for now, item in enumerate(trace):
        uses[item] = uses.get(item, 0) + 1
        if item not in resident:
            misses += 1
            while len(resident) >= fits:
                count, last, victim = heapq.heappop(heap)
                if resident.get(victim) == (count, last):
                    del resident[victim]
        resident[item] = (uses[item], now)
        heapq.heappush(heap, (uses[item], now, item))
    return misses


def s3_fifo(trace: Trace, fits: int) -> int:
    """A small queue for what is new, a large one for what came back, and names of what left the small one."""
    small: deque[int] = deque()
    main: deque[int] = deque()
    ghosts: OrderedDict[int, None] = OrderedDict()
    counts: dict[int, int] = {}
    most_small = max(1, fits // 10)
    misses = 0
    for item in trace:
        if item in counts:
            counts[item] = min(3, counts[item] + 1)
            continue
        misses += 1
        while len(counts) >= fits:
            if len(small) >= most_small or not main:
                victim = small.popleft()
                if counts[victim] > 0:
                    counts[victim] = 0
                    main.append(victim)
                else:
                    del counts[victim]
                    ghosts[victim] = None
                    if len(ghosts) > fits:
                        ghosts.popitem(last=False)
            else:
                victim = main.popleft()
                if counts[victim] > 0:
                    counts[victim] -= 1
                    main.append(victim)
                else:
                    del counts[victim]
        counts[item] = 0
        if item in ghosts:
            del ghosts[item]
            main.append(item)
        else:
            small.append(item)
    return misses


def belady(trace: Trace, fits: int) -> int:
    """Evicts what is used last of all; knows the future."""
    never = len(trace)
    following = [never] * len(trace)
    seen: dict[int, int] = {}
    for now in range(len(trace) - 1, -1, -1):
        following[now] = seen.get(trace[now], never)
        seen[trace[now]] = now
    resident: dict[int, int] = {}
    heap: list[tuple[int, int]] = []
    misses = 0
    for now, item in enumerate(trace):
        if item not in resident:
            misses += 1
            while len(resident) >= fits:
                after, victim = heapq.heappop(heap)
                if resident.get(victim) == -after:
                    del resident[victim]
        resident[item] = following[now]
        heapq.heappush(heap, (-following[now], item))
    return misses


def replay(trace: Trace, fits: int) -> int:
    """The misses of a real pager."""
    import weightstore

    count, size = max(trace) + 1, 8
    entries = {str(i): (i * size, size) for i in range(count)}
    pager = weightstore.LayerPager(bytes(count * size), entries, fits * size)
    for item in trace:
        pager.acquire(item).release()
    return int(pager.stats()["misses"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=200)
    arguments = parser.parse_args()
    shapes = {"48 x 64, top 6": (48, 64, 6), "32 x 8, top 2": (32, 8, 2)}
    for name, (layers, experts, top) in shapes.items():
        policies: dict[str, Callable[[Trace, int], int]] = {
            "lru": lru,
            "lru of each layer": lambda trace, fits, n=experts: lru_of_each_layer(trace, fits, n),  # type: ignore[misc]
            "frequency": frequency,
            "s3-fifo": s3_fifo,
            "belady": belady,
        }
        for reuse, zipf in ((0.3, 1.2), (0.3, 0.8), (0.3, 0.0)):
            trace = moe_trace(layers, experts, top, arguments.tokens, reuse=reuse, zipf=zipf)
            for share in (0.25, 0.5):
                fits = int(layers * experts * share)
                found = {policy: misses(trace, fits) for policy, misses in policies.items()}
                assert replay(trace, fits) == found["lru"], "the pager and the simulation differ"
                text = ", ".join(f"{policy} {n / found['lru']:.3f}" for policy, n in found.items() if policy != "lru")
                print(
                    f"{name}, Zipf {zipf}, {share:.0%} fits: LRU reads {found['lru'] / len(trace):.3f} of the uses; of LRU's bytes: {text}",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What a run of an offloaded module was limited by."""

from __future__ import annotations

from .._files.sizes import format_size
from .._pager import Pager
from .block import Counters


def describe_run(pager: Pager, counters: Counters, model_bytes: int, buffer_bytes: int) -> str:
    """One paragraph."""
    stats = pager.stats()
    budget = pager.budget_bytes
    limit = "no limit" if budget is None else f"a budget of {format_size(budget)}"
    head = f"{format_size(model_bytes)} of weights with {limit} (and {format_size(buffer_bytes)} of buffers beside it)"
    if counters.first is None or counters.last <= counters.first:
        return f"{head}: nothing has run yet."
    wall = (counters.last - counters.first) / 1e9
    waiting = counters.waiting_ns / 1e9
    acquires = stats["hits"] + stats["misses"] + stats["coalesced_waits"] + stats["resurrected"]
    share = min(1.0, waiting / wall)
    passes = max(1, counters.passes)
    text = (
        f"{head}: {counters.calls} runs of blocks in {wall:.2f} s, of which {share:.0%} was spent waiting for weights. "
        f"{stats['hits'] / max(acquires, 1):.0%} of the weights were in memory when they were needed; "
        f"{format_size(stats['bytes_read'])} were read, {format_size(stats['bytes_read'] // passes)} in each of {passes} passes. "
    )
    if counters.casts:
        text += f"{counters.casts} weights were cast to the module's type. "
    return text + _advice(stats, model_bytes, budget, waiting / passes, share)


def _advice(stats: dict[str, int], model_bytes: int, budget: int | None, waiting: float, share: float) -> str:
    if budget is None or budget >= model_bytes:
        return "Everything fits: after the first pass nothing is read."
    if share < 0.05:
        return "Computing limits it: a larger budget would save almost nothing."
    rate = stats["bytes_read"] / max(stats["load_ns"] / 1e9, 1e-9)
    enough = min(model_bytes, budget + int(waiting * rate))
    return (
        f"Reading limits it, at {format_size(int(rate))} per second and reader: about {format_size(enough)} would be enough to wait "
        f"no more, and {format_size(model_bytes)} to read nothing after the first pass."
    )

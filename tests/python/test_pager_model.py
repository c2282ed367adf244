"""Any sequence of operations leaves the same tensors resident, in the same order of use, as a few lines of Python do."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weightstore import LayerPager, TensorNotFound

SIZES = [10, 20, 30, 40, 50, 0, 25, 60]
COUNT = len(SIZES)
OFFSETS = [sum(SIZES[:i]) for i in range(COUNT)]
DATA = bytes(i % 251 for i in range(sum(SIZES) + 1))


class Model:
    """Least recently used first; what is held survives eviction."""

    def __init__(self, budget, pinned):
        self.budget = budget
        self.pins = {i: int(i in pinned) for i in range(COUNT)}
        self.order = []
        self.victims = []
        self.reads = 0
        self.resurrected = 0

    @property
    def bytes(self):
        return sum(SIZES[i] for i in self.order)

    def evict_for(self, size):
        while self.bytes + size > self.budget:
            victim = next((i for i in self.order if not self.pins[i]), None)
            if victim is None:
                return
            self.evict(victim)

    def evict(self, i):
        self.order.remove(i)
        self.victims.append(i)

    def acquire(self, i, held):
        if i in self.order:
            self.order.remove(i)
        else:
            if held:
                self.resurrected += 1
            else:
                self.reads += 1
            self.evict_for(SIZES[i])
        self.order.append(i)


ids = st.integers(0, COUNT - 1)
operations = st.lists(
    st.one_of(
        st.tuples(st.just("acquire"), ids),
        st.tuples(st.just("hold"), ids),
        st.tuples(st.just("release"), ids),
        st.tuples(st.just("pin"), ids),
        st.tuples(st.just("unpin"), ids),
        st.tuples(st.just("evict"), ids),
        st.tuples(st.just("clear"), ids),
        st.tuples(st.just("budget"), st.integers(0, 200)),
        st.tuples(st.just("touch"), ids),
        st.tuples(st.just("unknown"), ids),
    ),
    max_size=60,
)


@settings(max_examples=300, deadline=None)
@given(budget=st.integers(0, 200), pinned=st.sets(ids, max_size=3), steps=operations)
def test_pager_is_its_model(budget, pinned, steps):
    entries = {f"t{i}": (OFFSETS[i], SIZES[i]) for i in range(COUNT)}
    pager = LayerPager(lambda offset, size: DATA[offset : offset + size], entries, budget, [f"t{i}" for i in pinned])
    model = Model(budget, pinned)
    slot = {i: pager.slot(f"t{i}") for i in range(COUNT)}
    held = {i: [] for i in range(COUNT)}
    for step, i in steps:
        match step:
            case "acquire" | "hold":
                model.acquire(i, bool(held[i]))
                tensor = pager.acquire(slot[i])
                assert tensor.bytes() == DATA[OFFSETS[i] : OFFSETS[i] + SIZES[i]]
                if step == "hold":
                    held[i].append(tensor)
                del tensor
            case "release":
                if held[i]:
                    held[i].pop().release()
            case "pin":
                model.pins[i] += 1
                pager.pin(f"t{i}")
            case "unpin":
                if model.pins[i]:
                    model.pins[i] -= 1
                    pager.unpin(f"t{i}")
            case "evict":
                expected = i in model.order and not model.pins[i]
                if expected:
                    model.evict(i)
                assert pager.evict(slot[i]) is expected
            case "clear":
                loose = [k for k in sorted(model.order, key=lambda k: slot[k]) if not model.pins[k]]
                for k in loose:
                    model.evict(k)
                assert pager.clear() == len(loose)
            case "budget":
                model.budget = i
                pager.set_budget(i)
                model.evict_for(0)
            case "touch":
                if i in model.order:
                    model.order.remove(i)
                    model.order.append(i)
                    pager.prefetch([slot[i]])
            case "unknown":
                with pytest.raises(TensorNotFound):
                    pager.acquire("unknown")
        assert [k for k in range(COUNT) if pager.is_resident(f"t{k}")] == sorted(model.order)
        assert pager.resident_bytes == model.bytes
        assert pager.resident_count == len(model.order)
        assert pager.over_budget_bytes == max(0, model.bytes - model.budget)
        alive = set(model.order) | {k for k in range(COUNT) if held[k]}
        assert pager.live_bytes == sum(SIZES[k] for k in alive)
        stats = pager.stats()
        assert stats["misses"] == stats["loads"] == model.reads
        assert stats["resurrected"] == model.resurrected
        assert stats["evictions"] == len(model.victims)
        for k in set(model.victims):
            assert pager.stats(f"t{k}")["evictions"] == model.victims.count(k)

"""Any sequence of operations leaves the same tensors resident, in the same order of use, as a few lines of Python do."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weightstore import BudgetExceeded, LayerPager, TensorNotFound

SIZES = [10, 20, 30, 40, 50, 0, 25, 60]
COUNT = len(SIZES)
OFFSETS = [sum(SIZES[:i]) for i in range(COUNT)]
DATA = bytes(i % 251 for i in range(sum(SIZES) + 1))


def size_of(tensors):
    return sum(SIZES[i] for i in tensors)


class Model:
    """Least recently used first; what is held survives eviction. `order` has the residents, the oldest first."""

    def __init__(self, budget, pinned, strict):
        self.budget = budget
        self.strict = strict
        self.pins = {i: int(i in pinned) for i in range(COUNT)}
        self.held = dict.fromkeys(range(COUNT), 0)
        self.order = []
        self.unused = set()  # prefetched, and not acquired since
        self.victims = []
        self.misses = 0
        self.reads = 0
        self.resurrected = 0

    @property
    def live(self):
        return size_of(set(self.order) | {i for i in range(COUNT) if self.held[i]})

    @property
    def counted(self):
        return self.live if self.strict else size_of(self.order)

    def evict(self, i):
        self.order.remove(i)
        self.unused.discard(i)
        self.victims.append(i)

    def may_go(self, spare):
        return [
            i
            for i in self.order
            if not self.pins[i] and not (self.strict and self.held[i]) and not (spare and i in self.unused)
        ]

    def shrink(self, more, *, spare=False):
        """Evicts until `more` bytes keep the budget, or nothing can go."""
        while self.counted + more > self.budget:
            loose = self.may_go(spare)
            if not loose:
                return
            self.evict(loose[0])

    def make_room(self, more, *, spare=False):
        """Strict: all that is needed goes, or nothing."""
        if self.strict and self.live + more - size_of(self.may_go(spare)) > self.budget:
            return False
        self.shrink(more, spare=spare)
        return True

    def revive(self, i):
        """Whether the tensor needs no reading; then it is resident, and the youngest."""
        if i in self.order:
            self.order.remove(i)
        elif self.held[i]:
            self.resurrected += 1
            if not self.strict:
                self.shrink(SIZES[i])
        else:
            return False
        self.order.append(i)
        return True

    def acquire(self, i):
        if not self.revive(i):
            self.misses += 1
            if not self.make_room(SIZES[i]):
                return False
            self.reads += 1
            self.order.append(i)
        self.unused.discard(i)
        return True

    def prefetch(self, i):
        if self.revive(i):
            return
        kept = size_of(k for k in self.order if self.pins[k] or k in self.unused)
        if kept + SIZES[i] <= self.budget and self.make_room(SIZES[i], spare=True):
            self.reads += 1
            self.order.append(i)
            self.unused.add(i)


ids = st.integers(0, COUNT - 1)
VERBS = ("acquire", "hold", "release", "pin", "unpin", "evict", "clear", "prefetch", "unknown")
operations = st.lists(
    st.one_of(st.tuples(st.sampled_from(VERBS), ids), st.tuples(st.just("budget"), st.integers(0, 200))), max_size=60
)


@settings(max_examples=400, deadline=None)
@given(budget=st.integers(0, 200), pinned=st.sets(ids, max_size=3), strict=st.booleans(), steps=operations)
def test_pager_is_its_model(budget, pinned, strict, steps):
    entries = {f"t{i}": (OFFSETS[i], SIZES[i]) for i in range(COUNT)}
    pager = LayerPager(
        lambda offset, size: DATA[offset : offset + size], entries, budget, [f"t{i}" for i in pinned], strict=strict
    )
    model = Model(budget, pinned, strict)
    slot = {i: pager.slot(f"t{i}") for i in range(COUNT)}
    held = {i: [] for i in range(COUNT)}
    for step, i in steps:
        match step:
            case "acquire" | "hold":
                if not model.acquire(i):
                    with pytest.raises(BudgetExceeded):
                        pager.acquire(slot[i], timeout=0)
                    continue
                tensor = pager.acquire(slot[i], timeout=0)
                assert tensor.bytes() == DATA[OFFSETS[i] : OFFSETS[i] + SIZES[i]]
                if step == "hold":
                    held[i].append(tensor)
                    model.held[i] += 1
                del tensor
            case "release":
                if held[i]:
                    held[i].pop().release()
                    model.held[i] -= 1
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
                model.shrink(0)
            case "prefetch":
                model.prefetch(i)
                pager.prefetch([slot[i]], wait=True)
            case "unknown":
                with pytest.raises(TensorNotFound):
                    pager.acquire("unknown")
        assert [k for k in range(COUNT) if pager.is_resident(f"t{k}")] == sorted(model.order)
        assert pager.resident_bytes == size_of(model.order)
        assert pager.resident_count == len(model.order)
        assert pager.over_budget_bytes == max(0, model.counted - model.budget)
        assert pager.live_bytes == model.live
        stats = pager.stats()
        assert stats["misses"] == model.misses
        assert stats["loads"] == model.reads
        assert stats["resurrected"] == model.resurrected
        assert stats["evictions"] == len(model.victims)
        for k in set(model.victims):
            assert pager.stats(f"t{k}")["evictions"] == model.victims.count(k)

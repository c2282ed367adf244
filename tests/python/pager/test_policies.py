"""The policies beside a simulator of a few lines: what is read, what is kept, and that the budget holds, on any trace."""

from __future__ import annotations

import threading
from collections import OrderedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weightstore import InvalidArgument, LayerPager, TensorNotFound, schedule


class Source:
    """Tensors of given sizes, and a list of those that were read."""

    def __init__(self, sizes):
        self.sizes = sizes
        self.offsets = [sum(sizes[:i]) for i in range(len(sizes))]
        self.by_offset = {offset: i for i, offset in enumerate(self.offsets) if sizes[i]}
        self.lock = threading.Lock()
        self.read = []
        self.broken = set()

    def bytes_of(self, tensor):
        return bytes([tensor % 251]) * self.sizes[tensor]

    def __call__(self, offset, size):
        tensor = self.by_offset[offset]
        if tensor in self.broken:
            raise OSError(f"tensor {tensor} cannot be read")
        with self.lock:
            self.read.append(tensor)
        return self.bytes_of(tensor)

    def take_reads(self):
        with self.lock:
            read, self.read = self.read, []
        return read

    def pager(self, budget, policy, *, window, strict=True, readers=1):
        entries = {str(i): (self.offsets[i], size) for i, size in enumerate(self.sizes)}
        return LayerPager(self, entries, budget, policy=policy, strict=strict, readers=readers, window=window)


def run(source, pager, trace, reading=0):
    """Acquires one tensor after the other, with everything read ahead that there is room for; returns what was read.

    reading: the bytes that reader threads may be reading at a time, which a best-effort budget does not limit.
    """
    for tensor in trace:
        with pager.acquire(str(tensor)) as held:
            assert held.bytes() == source.bytes_of(tensor)
            assert pager.resident_bytes <= pager.budget_bytes
            assert pager.live_bytes <= pager.budget_bytes + reading or pager.policy == "lru"
        pager.prefetch([], wait=True)
    return source.take_reads()


def kept_by_rule(sizes, order, room):
    """Small tensors first if they take up little; the others by number of uses, spread evenly by bytes."""
    counts = {tensor: order.count(tensor) for tensor in dict.fromkeys(order)}
    small = [t for t in counts if sizes[t] < 128 << 10]
    first = small if sum(sizes[t] for t in small) <= room // 8 else []
    groups = [first] + [
        [t for t in counts if counts[t] == uses and t not in first]
        for uses in sorted(set(counts.values()), reverse=True)
    ]
    kept = set()
    for group in groups:
        total = sum(sizes[t] for t in group)
        if total <= room:
            kept.update(group)
            room -= total
            continue
        share, passed, taken = room / total, 0.0, 0.0
        for t in group:
            passed += sizes[t]
            if taken + sizes[t] / 2 <= passed * share and sizes[t] <= room:
                kept.add(t)
                taken += sizes[t]
                room -= sizes[t]
        for t in group:
            if t not in kept and sizes[t] <= room:
                kept.add(t)
                room -= sizes[t]
    return kept


def lru_reads(sizes, trace, budget):
    """How many bytes the least-recently-used order reads."""
    resident, read = OrderedDict(), 0
    for t in trace:
        if t in resident:
            resident.move_to_end(t)
            continue
        read += sizes[t]
        while resident and sum(resident.values()) + sizes[t] > budget:
            resident.popitem(last=False)
        resident[t] = sizes[t]
    return read


# ---- a cycle -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fits", [3, 6, 10, 15, 19])
@pytest.mark.parametrize("policy", ["cyclic", "schedule"])
def test_a_cycle_reads_what_is_not_kept(fits, policy):
    count, size, window = 20, 1 << 18, 2 << 18
    source = Source([size] * count)
    order = list(range(count))
    chosen = schedule(map(str, order)) if policy == "schedule" else policy
    with source.pager(fits * size, chosen, window=window) as pager:
        run(source, pager, order * 2)
        kept = kept_by_rule(source.sizes, order, fits * size - max(window, fits * size // 4))
        for _ in range(3):
            read = run(source, pager, order)
            assert sorted(read) == [t for t in order if t not in kept]
        assert pager.stats()["misses"] <= 2 * count
        gaps = [b - a for a, b in zip(sorted(kept), sorted(kept)[1:], strict=False)]
        assert not gaps or max(gaps) - min(gaps) <= 1


def test_what_fits_is_read_once():
    source = Source([1000] * 10)
    with source.pager(10_000, "cyclic", window=2000) as pager:
        assert sorted(run(source, pager, list(range(10)) * 4)) == list(range(10))


def test_a_schedule_reads_ahead_in_the_first_pass():
    source = Source([1000] * 10)
    with source.pager(4000, schedule(map(str, range(10))), window=2000) as pager:
        run(source, pager, range(10))
        assert pager.stats()["misses"] == 1
        assert pager.policy == "schedule"


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 40).map(lambda n: n * 1000), min_size=4, max_size=24),
    share=st.floats(0.2, 1.2),
    data=st.data(),
)
def test_any_cycle_keeps_what_the_rule_says(sizes, share, data):
    order = data.draw(st.permutations(range(len(sizes))))
    budget = max(int(sum(sizes) * share), 3 * max(sizes))
    window = 2 * max(sizes)
    source = Source(sizes)
    with source.pager(budget, "cyclic", window=window) as pager:
        run(source, pager, order * 3)
        start = order.index(min(order))
        turned = order[start:] + order[:start]
        room = budget - max(window, budget // 4)
        kept = kept_by_rule(sizes, turned, room) if sum(sizes) > budget else set(order)
        if len(order) >= 3:
            assert all(pager.is_resident(str(t)) for t in kept)
        read = run(source, pager, order)
        assert sum(sizes[t] for t in read) <= sum(sizes[t] for t in order if t not in kept)
        assert sum(sizes[t] for t in read) >= sum(sizes) - budget


def test_tied_tensors_are_kept_first():
    source = Source([1000] * 10)
    order = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0]  # such as an embedding that is the head as well
    with source.pager(3000, "cyclic", window=1000) as pager:
        run(source, pager, order * 3)
        assert 0 not in run(source, pager, order * 2)


# ---- other orders ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("turns_twice", [False, True])
@pytest.mark.parametrize("fits", [4, 8, 12])
def test_zigzag_reads_no_more_than_lru(fits, turns_twice):
    count, size = 16, 1000
    there = list(range(count))
    back = there[::-1] if turns_twice else there[-2:0:-1]
    trace = (there + back) * 12
    source = Source([size] * count)
    with source.pager(fits * size, "cyclic", window=2 * size) as pager:
        read = size * len(run(source, pager, trace))
    assert read <= 1.02 * lru_reads(source.sizes, trace, fits * size) + 4 * size


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_random_orders_read_about_as_much_as_lru(data):
    """Experts of a router: nothing to learn, and little to lose."""
    count, fits = 24, 8
    trace = data.draw(st.lists(st.integers(0, count - 1), min_size=200, max_size=400))
    source = Source([1000] * count)
    with source.pager(fits * 1000, "cyclic", window=2000) as pager:
        read = 1000 * len(run(source, pager, trace))
    assert read <= 1.1 * lru_reads(source.sizes, trace, fits * 1000) + 8000


def test_a_new_order_is_learned_within_two_passes():
    source = Source([1000] * 20)
    first, second = list(range(20)), list(range(0, 20, 2)) + list(range(1, 20, 2))
    with source.pager(10_000, "cyclic", window=2500) as pager:
        run(source, pager, first * 4)
        run(source, pager, second * 3)
        assert len(run(source, pager, second)) <= 13  # 20 - (10 - 2.5)


def test_an_early_exit_keeps_what_is_kept():
    source = Source([1000] * 20)
    order = list(range(20))
    with source.pager(10_000, "cyclic", window=2500) as pager:
        run(source, pager, order * 3)
        kept = [t for t in order if pager.is_resident(str(t))]
        run(source, pager, order[:7])
        run(source, pager, order[:4])
        read = run(source, pager, order)
        assert len(read) <= 13 + 2 * 3  # each jump may cost the window
        assert len(run(source, pager, order)) == 13
        assert set(kept) & {t for t in order if pager.is_resident(str(t))}


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_trace_gets_the_right_bytes_within_the_budget(data):
    sizes = data.draw(st.lists(st.integers(0, 30).map(lambda n: n * 100), min_size=2, max_size=12))
    parts = data.draw(st.lists(st.lists(st.integers(0, len(sizes) - 1), max_size=14), max_size=5))
    trace = [t for part in parts for t in part * data.draw(st.integers(1, 4))]
    budget = max(2 * max(sizes), sum(sizes) // 2)
    source = Source(sizes)
    with source.pager(budget, "cyclic", window=max(1, max(sizes)), readers=2) as pager:
        pins = data.draw(st.sampled_from([[], [0]]))
        for t in pins:
            pager.pin(str(t))
        run(source, pager, trace)
        assert pager.stats()["load_errors"] == 0


# ---- errors and threads ------------------------------------------------------------------------------------------------


def test_a_tensor_that_cannot_be_read_ahead_is_an_error_when_it_is_acquired():
    source = Source([1000] * 10)
    order = list(range(10))
    with source.pager(4000, "cyclic", window=2000) as pager:
        run(source, pager, order * 2)
        source.broken = {5}
        run(source, pager, order[:5])
        with pytest.raises(OSError, match="tensor 5"):
            pager.acquire("5")
        source.broken = set()
        run(source, pager, order[5:] + order * 2)


def test_threads_that_run_at_once_stay_within_the_budget():
    source = Source([1000] * 16)
    order = list(range(16))
    with source.pager(8000, "cyclic", window=3000, readers=2) as pager:
        wrong = []

        def work(begin):
            for t in (order[begin:] + order[:begin]) * 20:
                with pager.acquire(str(t)) as held:
                    if held.bytes() != source.bytes_of(t) or pager.live_bytes > 8000:
                        wrong.append(t)

        threads = [threading.Thread(target=work, args=(4 * i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        assert pager.resident_bytes <= 8000


def test_policies_are_checked():
    source = Source([10])
    with pytest.raises(InvalidArgument, match="'lru', 'cyclic' or schedule"):
        source.pager(10, "mru", window=None)
    with pytest.raises(InvalidArgument, match="at least one"):
        schedule([])
    with pytest.raises(TypeError, match=r"\['layer'\]"):
        schedule("layer")
    with pytest.raises(TensorNotFound):
        source.pager(10, schedule(["nothing"]), window=None)


def test_best_effort_budgets_have_policies_too():
    """Such a budget limits what is resident. A tensor that is being read is memory in addition: here one, by the one reader."""
    source = Source([1000] * 20)
    order = list(range(20))
    with source.pager(10_000, "cyclic", window=2500, strict=False, readers=1) as pager:
        run(source, pager, order * 3, reading=1000)
        assert len(run(source, pager, order, reading=1000)) <= 14

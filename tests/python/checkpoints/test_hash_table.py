"""torch.classes.store.HashTable, eagerly and inside TorchScript."""

import os
import re
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from support.torch_classes import torch


def make_table(dim: int = 4, dtype: Any = torch.float32, **options: Any) -> Any:
    return torch.classes.store.HashTable("user", [dim], dtype, **options)


def ids_of(*ids: int) -> Any:
    return torch.tensor(ids, dtype=torch.int64)


def test_the_whole_boundary_positionally() -> None:
    table = torch.classes.store.HashTable("user", [2, 3], torch.float32, 0, 32768, 65536, 1024)
    assert table.name() == "user"
    assert table.children() == ["user"]
    assert table.slice() == [0, 32768, 65536]
    table.add_slot("moment", [2, 3], torch.float32, 0.5)
    assert table.slot_names() == ["embedding", "moment"]
    rows, embeddings = table.lookup(ids_of(5, 6, 5), True)
    assert embeddings.shape == (3, 2, 3)
    assert rows[0] == rows[2]
    assert rows[0] != rows[1]
    assert table.size() == 2
    assert torch.equal(table.read_slot("moment", ids_of(6, 7))[:, 0, 0], torch.tensor([0.5, 0.0]))


def test_the_example_in_the_document() -> None:
    page = Path(__file__).parents[3] / "docs" / "hash-table.md"
    (example,) = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(example, page.name, "exec"), names)
    table = names["table"]
    assert sorted(table.ids().tolist()) == [7, 11]
    assert torch.equal(table.lookup(names["ids"], False)[1], names["embeddings"] - 0.1)


def test_insert_lookup_and_erase() -> None:
    table = make_table()
    values = torch.randn(1000, 4)
    ids = torch.randperm(1000) * 7919 - 10**6
    table.insert(ids, values)
    assert table.size() == 1000
    assert torch.equal(table.lookup(ids, False)[1], values)
    assert torch.equal(table.ids().sort().values, ids.sort().values)
    assert table.erase(ids[:10]) == 10
    rows, embeddings = table.lookup(ids[:20], False)
    assert torch.equal(rows == -1, torch.arange(20) < 10)
    assert torch.equal(embeddings[:10], torch.zeros(10, 4))
    assert table.contains(ids[5:15]).tolist() == [False] * 5 + [True] * 5
    table.clear()
    assert table.size() == 0
    table.insert(ids, values)
    assert torch.equal(table.lookup(ids, False)[1], values)


def test_of_equal_ids_the_last_wins() -> None:
    table = make_table(1)
    table.insert(ids_of(3, 4, 3), torch.tensor([[1.0], [2.0], [3.0]]))
    assert table.size() == 2
    assert table.lookup(ids_of(3, 4), False)[1].tolist() == [[3.0], [2.0]]


def test_non_contiguous_tensors_are_taken_as_they_look() -> None:
    table = make_table(3)
    values = torch.arange(12.0).reshape(3, 4).t()
    ids = torch.arange(8)[::2]
    table.insert(ids, values)
    assert torch.equal(table.lookup(ids, False)[1], values)
    out = torch.empty(3, 4).t()
    with pytest.raises(RuntimeError, match="contiguous"):
        table.lookup_out(ids, False, out)
    out = torch.empty(4, 3)
    table.lookup_out(ids, False, out)
    assert torch.equal(out, values)


def test_conjugated_and_negated_views_are_taken_as_they_look() -> None:
    table = make_table(1, torch.complex64)
    table.add_slot("sign", [1], torch.float32)
    values = torch.tensor([[1 + 2j], [3 - 4j]])
    ids = ids_of(1, 2)
    table.insert(ids, values.conj())
    assert torch.equal(table.lookup(ids, False)[1], values.conj().resolve_conj())
    imaginary = values.conj().imag
    assert imaginary.is_neg()
    assert table.write_slot("sign", ids, imaginary) == 2
    assert table.read_slot("sign", ids).tolist() == [[-2.0], [4.0]]
    rows, _ = table.lookup(ids, False)
    table.write_slot_rows("sign", rows, torch._neg_view(torch.tensor([[7.0], [8.0]])))
    assert table.read_slot_rows("sign", torch._neg_view(-rows)).tolist() == [[-7.0], [-8.0]]
    assert table.contains(torch._neg_view(-ids)).tolist() == [True, True]
    assert table.contains(torch._neg_view(ids)).tolist() == [False, False]


def test_outputs_that_are_not_plain_memory_are_refused() -> None:
    table = make_table(1, torch.complex64)
    out = torch.zeros(1, 1, dtype=torch.complex64)
    for view in (out.conj(), torch._neg_view(out)):
        with pytest.raises(RuntimeError, match="output of a lookup must be contiguous.*conjugate"):
            table.lookup_out(ids_of(1), True, view)
    assert table.size() == 0


def test_autograd_sees_that_an_output_was_written() -> None:
    table = make_table(2)
    ids = ids_of(1)
    weight = torch.ones(1, 2, requires_grad=True)
    out = torch.zeros(1, 2)
    loss = (weight * out).sum()
    table.lookup_out(ids, True, out)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    with pytest.raises(RuntimeError, match="output of a lookup requires grad"):
        table.lookup_out(ids, True, weight)
    table.insert(ids, torch.full((1, 2), 5.0))
    with torch.no_grad():
        table.lookup_out(ids, True, weight)
    assert weight.tolist() == [[5.0, 5.0]]
    with torch.inference_mode():
        inference = torch.zeros(1, 2)
        table.lookup_out(ids, False, inference)
    assert inference.tolist() == [[5.0, 5.0]]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64, torch.int32, torch.uint8, torch.bool])
def test_types(dtype: Any) -> None:
    table = make_table(2, dtype)
    values = torch.tensor([[1, 0], [1, 1]]).to(dtype)
    table.insert(ids_of(1, 2), values)
    found = table.lookup(ids_of(2, 1, 9), True)[1]
    assert found.dtype is dtype
    assert torch.equal(found, torch.tensor([[1, 1], [1, 0], [0, 0]]).to(dtype))


def test_new_rows_are_a_function_of_seed_and_id() -> None:
    first, second, other = make_table(8), make_table(8), make_table(8)
    first.set_initializer("normal", 0.0, 1.0, 7)
    second.set_initializer("normal", 0.0, 1.0, 7)
    other.set_initializer("normal", 0.0, 1.0, 8)
    ids = torch.arange(5000)
    rows = first.lookup(ids, True)[1]
    assert torch.equal(second.lookup(ids.flip(0), True)[1].flip(0), rows)
    assert not torch.equal(other.lookup(ids, True)[1], rows)
    assert abs(rows.mean()) < 0.02
    assert abs(rows.std() - 1) < 0.02
    first.erase(ids[:10])
    assert torch.equal(first.lookup(ids[:10], True)[1], rows[:10])


def test_touch_and_evict() -> None:
    table = make_table()
    ids = torch.arange(10)
    table.lookup(ids, True)
    assert table.touch(ids[:6], 100) == 6
    assert table.touch(ids[4:8], 200) == 4
    assert table.read_slot("version", ids).tolist() == [100] * 4 + [200] * 4 + [0] * 2
    assert table.evict_older(100) == 2
    assert table.evict_rarer(2) == 6
    assert sorted(table.ids().tolist()) == [4, 5]


def test_slots_for_touch_can_be_there_from_the_start() -> None:
    """Shards of a table need the same slots, whichever of them are touched before a save."""
    touched, untouched = make_table(), make_table()
    for table in (touched, untouched):
        table.add_slot("version", [], torch.int64)
        table.add_slot("freq", [], torch.int64)
        table.lookup(ids_of(1, 2), True)
    assert touched.touch(ids_of(2), 10) == 1
    assert touched.slot_names() == untouched.slot_names() == ["embedding", "version", "freq"]
    assert touched.read_slot("version", ids_of(1, 2)).tolist() == [0, 10]
    assert touched.evict_older(10) == 1
    never_touched = make_table()
    never_touched.lookup(ids_of(1), True)
    assert never_touched.evict_older(10) == never_touched.evict_rarer(10) == 0


def test_slots_by_row_number() -> None:
    table = make_table(2)
    table.add_slot("moment", [2], torch.float32, 0.5)
    ids = torch.randperm(500) * 7919
    rows, _ = table.lookup(ids, True)
    moments = torch.randn(500, 2)
    assert table.write_slot_rows("moment", rows, moments) == 500
    assert torch.equal(table.read_slot("moment", ids), moments)
    assert torch.equal(table.read_slot_rows("moment", rows.flip(0)), moments.flip(0))
    unknown = torch.tensor([-1, 2**62, int(rows[3])])
    assert torch.equal(table.read_slot_rows("moment", unknown), torch.stack([torch.zeros(2)] * 2 + [moments[3]]))
    assert table.write_slot_rows("moment", unknown, torch.ones(3, 2)) == 1
    epoch = table.snapshot().epoch()
    assert table.write_slot_rows("moment", rows[:2], torch.ones(2, 2)) == 2
    assert sorted(table.changed_since(epoch)[0].tolist()) == sorted(ids[:2].tolist())


def test_snapshots_and_changes() -> None:
    table = make_table(1)
    table.insert(ids_of(1, 2, 3), torch.tensor([[1.0], [2.0], [3.0]]))
    snapshot = table.snapshot()
    table.insert(ids_of(2, 4), torch.tensor([[20.0], [40.0]]))
    table.erase(ids_of(3))
    assert dict(zip(snapshot.ids().tolist(), snapshot.slot("embedding").flatten().tolist(), strict=True)) == {
        1: 1.0,
        2: 2.0,
        3: 3.0,
    }
    assert snapshot.size() == 3
    assert snapshot.epoch() == table.epoch()
    changed, erased = table.changed_since(snapshot.epoch())
    assert sorted(changed.tolist()) == [2, 4]
    assert erased.tolist() == [3]


def test_children_above_the_sign_bit() -> None:
    names = [f"child{i}" for i in range(4094)]
    table = make_table(1, children=names)
    assert table.children() == names
    ids = torch.cat([table.coalesced_ids(4093, ids_of(5)), table.coalesced_ids(0, ids_of(5))])
    assert ids.tolist() == [(4093 << 52 | 5) - (1 << 64), 5]
    table.insert(ids, torch.tensor([[1.0], [2.0]]))
    snapshot = table.snapshot()
    assert snapshot.ids(4093).tolist() == [5]
    assert snapshot.slot("embedding", 4093).tolist() == [[1.0]]
    assert snapshot.slot("embedding").tolist() == [[2.0]]


def test_ids_of_children() -> None:
    table = make_table(1, children=["user", "item"])
    largest = 2**52 - 1
    assert table.coalesced_ids(1, ids_of(0, largest)).tolist() == [1 << 52, (1 << 52) + largest]
    assert table.coalesced_ids(1, ids_of()).tolist() == []
    with pytest.raises(RuntimeError, match=r"child 2 of a table of 2"):
        table.coalesced_ids(2, ids_of(1))
    for id in (-1, largest + 1):
        with pytest.raises(RuntimeError, match=rf"id {id} .*0 to {largest}"):
            table.coalesced_ids(0, ids_of(3, id))
    alone = make_table(1, children=["user"])  # not coalesced: named as RecIS names it
    assert alone.coalesced_ids(0, ids_of(-1, 2**62)).tolist() == [-1, 2**62]
    alone.insert(ids_of(-1), torch.ones(1, 1))
    assert alone.snapshot().ids().tolist() == [-1]


def test_a_table_is_told_by_its_tag() -> None:
    assert hasattr(make_table(), "hashtable_tag")
    assert make_table().hashtable_tag == -1
    assert not hasattr(torch.zeros(1), "hashtable_tag")


def test_inside_torchscript() -> None:
    @torch.jit.script
    def train(ids: torch.Tensor, steps: int) -> tuple[int, torch.Tensor]:
        table = torch.classes.store.HashTable("user", [4], torch.float32, 0, 65536, 65536, 4096, [])
        table.add_slot("moment", [4], torch.float32, 0.0)
        for step in range(steps):
            _, rows = table.lookup(ids, True)
            table.insert(ids, rows + 1)
            table.touch(table.coalesced_ids(0, ids), step)
        return table.size(), table.lookup(ids, False)[1]

    size, rows = train(torch.arange(100), 3)
    assert size == 100
    assert torch.equal(rows, torch.full((100, 4), 3.0))


def test_errors_say_what_was_expected() -> None:
    table = make_table(4, slice_begin=0, slice_end=100)
    with pytest.raises(RuntimeError, match=r"id 100 lies in bucket 100.*\[0, 100\)"):
        table.lookup(ids_of(100), True)
    with pytest.raises(RuntimeError, match=r"Float \[1, 3\].*expected F32 \[1, 4\]"):
        table.insert(ids_of(1), torch.zeros(1, 3))
    with pytest.raises(RuntimeError, match=r"Double.*expected F32"):
        table.insert(ids_of(1), torch.zeros(1, 4, dtype=torch.float64))
    with pytest.raises(RuntimeError, match=r"ids are Int.*expected int64"):
        table.erase(torch.zeros(1, dtype=torch.int32))
    with pytest.raises(RuntimeError, match=r"ids are Long \[1, 1\]"):
        table.contains(torch.zeros(1, 1, dtype=torch.int64))
    with pytest.raises(RuntimeError, match="has no slot 'nothing'; it has embedding"):
        table.read_slot("nothing", ids_of(1))
    with pytest.raises(RuntimeError, match="no initializer 'xavier'"):
        table.set_initializer("xavier", 0.0, 1.0, 0)
    with pytest.raises(RuntimeError, match="begin < end"):
        make_table(4, slice_begin=7, slice_end=7)
    with pytest.raises(RuntimeError, match="a table can hold"):
        make_table(4, torch.qint8)
    with pytest.raises(RuntimeError, match="cannot have elements of C128"):
        make_table(4, torch.complex128)
    with pytest.raises(RuntimeError, match=r"row numbers are Int.*expected int64"):
        table.read_slot_rows("embedding", torch.zeros(1, dtype=torch.int32))
    with pytest.raises(RuntimeError, match="0 or more"):
        table.reserve(-1)
    assert table.size() == 0


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_arguments_that_are_no_dense_tensors() -> None:
    table = make_table(4)
    values = torch.zeros(1, 4)
    with pytest.raises(RuntimeError, match="ids: the tensor is None; expected a tensor"):
        table.lookup(None, True)
    with pytest.raises(RuntimeError, match="ids: the tensor has the layout Sparse"):
        table.contains(ids_of(1).to_sparse())
    with pytest.raises(RuntimeError, match="row numbers: the tensor is None"):
        table.read_slot_rows("embedding", None)
    for value, found in (
        (None, "is None"),
        (values.to_sparse(), "has the layout Sparse"),
        (values.to_mkldnn(), "is an mkldnn tensor"),
        (torch.nested.nested_tensor([values]), "is nested"),
    ):
        for call in (
            lambda value: table.insert(ids_of(1), value),
            lambda value: table.lookup_out(ids_of(1), True, value),
            lambda value: table.write_slot("embedding", ids_of(1), value),
        ):
            with pytest.raises(RuntimeError, match=f"values of slot 'embedding': the tensor {found}"):
                call(value)
    assert table.size() == 0


def test_names_and_numbers_that_could_not_be_saved_are_refused_at_once() -> None:
    table = make_table(4)
    for name in ("a@b", "id", ""):
        with pytest.raises(RuntimeError, match="a slot cannot be named"):
            table.add_slot(name, [1], torch.float32)
    with pytest.raises(RuntimeError, match=r"slot 'big' of F16: cannot hold 1e\+06"):
        table.add_slot("big", [1], torch.float16, 1e6)
    assert table.slot_names() == ["embedding"]


def test_other_threads_run_meanwhile() -> None:
    """A thread that counts makes progress while one long call works: the interpreter is not held."""
    table = make_table(16)
    ids = torch.arange(2**19) * 7919
    values = torch.zeros(2**19, 16)
    counted = 0
    stop = threading.Event()

    def count() -> None:
        nonlocal counted
        while not stop.is_set():
            counted += 1
            time.sleep(0)

    thread = threading.Thread(target=count)
    thread.start()
    try:
        before = counted
        table.insert(ids, values)
        progress = counted - before
    finally:
        stop.set()
        thread.join()
    assert table.size() == 2**19
    assert progress > 10


def test_a_forked_child_uses_a_table_that_threads_of_the_parent_use() -> None:
    # Few rows: torch works on large tensors with threads of its own, which do not survive a fork.
    table, ids = make_table(8), torch.arange(1000) * 977
    table.insert(ids, torch.ones(1000, 8))
    stop = threading.Event()

    def work(call: Any) -> None:
        while not stop.is_set():
            call()

    calls = [lambda: table.insert(ids, torch.ones(1000, 8)), table.snapshot, lambda: table.lookup(ids, False)]
    threads = [threading.Thread(target=work, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    try:
        for _ in range(10):
            child = os.fork()
            if child == 0:
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(60)
                good = bool(table.lookup(ids, False)[1].eq(1).all())
                table.insert(ids, torch.full((1000, 8), 2.0))
                os._exit(0 if good and table.snapshot().size() == 1000 else 1)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()

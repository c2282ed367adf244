"""Saves and loads that are watched, and ended by whoever watches or by Ctrl-C."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import weightstore
from support.torch_classes import torch
from weightstore._checkpoints.background_call import BackgroundCall


class Enough(Exception):
    pass


def endless_save(path: Path, layout: str, progress: Any) -> weightstore.Saver:
    """Shard 0 of two, the other of which never comes."""
    tensors = {"w": torch.zeros(1000)}
    return weightstore.Saver(
        0,
        2,
        2,
        path,
        tensors=tensors,
        layout=layout,
        overwrite=layout == "recis",
        progress=progress,
        timeout=float("inf"),
    )


def answer_false(done: int, total: int, name: str) -> bool:
    return False


def answer_with_an_error(done: int, total: int, name: str) -> bool:
    raise Enough


@pytest.mark.parametrize("layout", ["plain", "recis"])
@pytest.mark.parametrize(
    ("progress", "expected"),
    [(answer_false, weightstore.errors.OperationCancelled), (answer_with_an_error, Enough)],
)
def test_a_save_is_cancelled(tmp_path: Path, layout: str, progress: Any, expected: type) -> None:
    path = tmp_path / "checkpoint"
    weightstore.Saver(path=path, tensors={"w": torch.ones(3)}, layout=layout).save()
    before = sorted(path.iterdir())
    with pytest.raises(expected):
        endless_save(path, layout, progress).save()
    with pytest.raises(expected):
        endless_save(path, layout, progress).save_async().result(60)
    assert sorted(path.iterdir()) == before
    assert list(tmp_path.iterdir()) == [path]
    assert torch.equal(weightstore.CheckpointReader(path).read_tensor("w"), torch.ones(3))


def test_ctrl_c_ends_a_save(tmp_path: Path) -> None:
    code = """
import signal, sys, threading, time
import torch, weightstore
signal.signal(signal.SIGINT, signal.default_int_handler)
saver = weightstore.Saver(0, 2, 2, sys.argv[1], tensors={"w": torch.zeros(1000)}, timeout=3600)
threading.Timer(0.2, signal.raise_signal, [signal.SIGINT]).start()
try:
    saver.save()
except KeyboardInterrupt:
    print("interrupted")
"""
    result = subprocess.run([sys.executable, "-c", code, tmp_path / "c"], capture_output=True, text=True, timeout=120)
    assert result.stdout == "interrupted\n", result.stderr
    assert list((tmp_path / "c").iterdir()) == []


class Impl:
    """Stands for a saver or loader that works until it is cancelled."""

    def __init__(self) -> None:
        self._cancelled = threading.Event()

    def progress(self) -> tuple[int, int, str]:
        return 1, 2, "w"

    def cancel(self) -> None:
        self._cancelled.set()

    def work(self) -> None:
        assert self._cancelled.wait(60)
        raise RuntimeError("was cancelled")


def test_whoever_watches_ends_a_call() -> None:
    impl = Impl()
    with pytest.raises(RuntimeError, match="was cancelled"):
        BackgroundCall(impl, impl.work, answer_false).wait()
    impl = Impl()
    with pytest.raises(Enough):
        BackgroundCall(impl, impl.work, answer_with_an_error).wait()


def test_an_error_after_the_end_is_too_late(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def fails_at_the_end(done: int, total: int, name: str) -> None:
        if done == total:
            assert name == "w"
            raise Enough

    weightstore.Saver(path=tmp_path, tensors={"w": torch.ones(3)}, progress=fails_at_the_end).save()
    assert torch.equal(weightstore.CheckpointReader(tmp_path).read_tensor("w"), torch.ones(3))
    assert "progress raised" in caplog.text


def test_an_error_that_comes_while_the_work_ends_is_too_late(caplog: pytest.LogCaptureFixture) -> None:
    class Finishing(Impl):
        def work(self) -> None:
            assert self._cancelled.wait(60)  # and is done all the same

    impl = Finishing()
    BackgroundCall(impl, impl.work, answer_with_an_error).wait()
    assert "progress raised" in caplog.text


def test_a_save_that_cannot_begin_is_no_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    saver = weightstore.Saver(path=tmp_path, tensors={"w": torch.ones(3)})
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", no_thread)
        with pytest.raises(RuntimeError, match="can't start"):
            saver.save_async()
    saver.save_async().result(60)
    with pytest.raises(TypeError, match="progress"):
        weightstore.Saver(path=tmp_path, progress=3)  # type: ignore[arg-type]


@pytest.mark.parametrize("started", [0, 1])
def test_a_save_async_without_its_threads_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: int
) -> None:
    """save_async() needs two threads; the first or the second cannot be started."""
    start = threading.Thread.start
    left = [started]

    def no_more_threads(thread: threading.Thread) -> None:
        if left[0] == 0:
            raise RuntimeError("can't start new thread")
        left[0] -= 1
        start(thread)

    tensor = torch.ones(1000)
    saver = weightstore.Saver(path=tmp_path, tensors={"w": tensor})
    threads = set(threading.enumerate())
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", no_more_threads)
        with pytest.raises(RuntimeError, match="can't start") as caught:
            saver.save_async()
    for thread in set(threading.enumerate()) - threads:
        thread.join(60)
        assert not thread.is_alive()
    assert list(tmp_path.iterdir()) == []  # neither a checkpoint nor a lock
    assert not saver._staging
    frames = [entry.frame.f_locals for entry in caught.traceback]
    assert not any(frame.get("blocks") for frame in frames)
    weightstore.Saver(path=tmp_path, tensors={"w": tensor + 1}).save()
    saver.save_async().result(60)
    assert weightstore.CheckpointReader(tmp_path).read_tensor("w").eq(1).all()


def test_a_save_that_failed_lets_go_of_its_tables(tmp_path: Path) -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    rows = 400_000
    table = torch.classes.store.HashTable("user", [32], torch.float32)
    ids, values = torch.arange(rows), torch.ones(rows, 32)
    table.insert(ids, values)
    saver = weightstore.Saver(0, 2, 1, tmp_path, {"user": table}, progress=answer_with_an_error, timeout=60)
    failed = saver.save_async()
    with pytest.raises(Enough):
        failed.result(60)
    before = resident()
    table.insert(ids, values)
    assert resident() - before < values.nbytes // 2


def test_a_load_is_watched(tmp_path: Path) -> None:
    table = torch.classes.store.HashTable("user", [4], torch.float32)
    table.insert(torch.arange(1000), torch.ones(1000, 4))
    weightstore.Saver(path=tmp_path, hashtables={"user": table}, tensors={"w": torch.ones(100, 3).T}).save()
    seen: list[tuple[int, int, str]] = []
    target = torch.classes.store.HashTable("user", [4], torch.float32)
    w = torch.zeros(3, 100)
    weightstore.Loader(tmp_path, {"user": target}, {"w": w}, progress=lambda *call: seen.append(call)).load()
    assert seen[-1][:2] == (1000 * 24 + 1200, 1000 * 24 + 1200)
    assert target.size() == 1000
    assert w.eq(1).all()
    with pytest.raises(TypeError, match="progress"):
        weightstore.Loader(tmp_path, {"user": target}, {"w": w}, progress=3)  # type: ignore[arg-type]


def test_other_threads_run_meanwhile(tmp_path: Path) -> None:
    """The interpreter is not held while a shard waits for the others."""
    saver = weightstore.Saver(1, 2, 1, tmp_path, timeout=0.3)
    counted = 0
    done = threading.Event()

    def count() -> None:
        nonlocal counted
        while not done.wait(0.001):
            counted += 1

    thread = threading.Thread(target=count)
    thread.start()
    try:
        with pytest.raises(RuntimeError, match="shard 0 did not begin"):
            saver._impl.save([])
    finally:
        done.set()
        thread.join()
    assert counted > 3

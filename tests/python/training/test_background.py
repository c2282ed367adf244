"""Saves in the background: one at a time, errors that are not lost, SIGTERM, and programs that end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from weightstore import CheckpointManager, ConflictError, InvalidArgument
from weightstore._training import step_files

torch = pytest.importorskip("torch")


class Gate:
    """Holds the first save in the background until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: Exception | None = None) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()
        write = step_files.write

        def waiting(*arguments: Any, **options: Any) -> None:
            self.reached.set()
            assert self.opened.wait(60)
            if error is not None:
                raise error
            write(*arguments, **options)

        monkeypatch.setattr(step_files, "write", waiting)


def test_the_next_save_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    with CheckpointManager(tmp_path) as manager:
        assert manager.save(1, {"x": torch.ones(3)})
        assert gate.reached.wait(60)
        assert manager.steps() == []
        threading.Timer(0.1, gate.opened.set).start()
        assert manager.save(2, {"x": torch.ones(3)})
        assert manager.steps()[:1] == [1]
        manager.wait()
        assert manager.steps() == [1, 2]


def test_the_next_save_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    with CheckpointManager(tmp_path, on_busy="skip") as manager:
        assert manager.save(1, {"x": torch.ones(3)})
        assert not manager.save(2, {"x": torch.ones(3)})
        gate.opened.set()
        manager.wait()
        assert manager.save(3, {"x": torch.ones(3)})
    assert manager.steps() == [1, 3]


def test_another_manager_is_refused_while_one_saves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    with CheckpointManager(tmp_path) as manager, CheckpointManager(tmp_path) as other:
        manager.save(1, {})
        with pytest.raises(ConflictError, match="saves into this directory"):
            other.save(2, {})
        gate.opened.set()
        manager.wait()
        other.save(2, {})
    assert manager.steps() == [1, 2]


@pytest.mark.parametrize("call", ["save", "restore", "wait", "close", "with"])
def test_an_error_is_raised_by_the_next_call_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    with monkeypatch.context() as patch:
        gate = Gate(patch, OSError(28, "No space left on device"))
        manager = CheckpointManager(tmp_path)
        manager.save(1, {"x": torch.ones(3)})
        gate.opened.set()
        manager._background._ended.wait()
    calls = {
        "save": lambda: manager.save(2, {}),
        "restore": manager.restore,
        "wait": manager.wait,
        "close": manager.close,
        "with": lambda: manager.__exit__(None, None, None),
    }
    with pytest.raises(OSError, match="No space left"):
        calls[call]()
    manager.wait()
    assert os.listdir(tmp_path) == [".weightstore.lock"]
    if call in ("save", "restore", "wait"):
        manager.save(2, {})
        manager.close()
        assert manager.steps() == [2]


PROGRAM = """
import sys, torch
from weightstore import CheckpointManager
from weightstore._training import step_files
manager = CheckpointManager(sys.argv[1])
if sys.argv[2] == "fails":
    def fail(*arguments, **options): raise OSError(28, "No space left on device")
    step_files.write = fail
manager.save(1, {"x": torch.ones(1 << 22)})
"""


def program(*arguments: str) -> subprocess.CompletedProcess[str]:
    """From standard input: without a file, as in a notebook, and without `if __name__ == "__main__"`."""
    command = [sys.executable, "-", *arguments]
    return subprocess.run(command, input=PROGRAM, capture_output=True, text=True, timeout=300)


def test_a_program_that_ends_completes_its_save(tmp_path: Path) -> None:
    done = program(str(tmp_path), "works")
    assert (done.returncode, done.stderr) == (0, "")
    found = CheckpointManager(tmp_path).restore()
    assert found is not None
    assert found["x"].eq(1).all()


def test_an_error_that_nobody_asks_for_is_logged_at_the_end(tmp_path: Path) -> None:
    done = program(str(tmp_path), "fails")
    assert f"saving step 1 into {tmp_path} failed: [Errno 28] No space left on device" in done.stderr
    assert os.listdir(tmp_path) == [".weightstore.lock"]


def test_a_forked_child_does_not_keep_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    manager = CheckpointManager(tmp_path)
    manager.save(1, {})
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writing)
        os.read(reading, 1)
        os._exit(0)
    gate.opened.set()
    manager.wait()
    manager.save(2, {})
    manager.close()
    os.close(writing)
    assert os.waitpid(child, 0)[1] == 0


def test_sigterm(tmp_path: Path) -> None:
    called = []
    former = signal.signal(signal.SIGTERM, lambda number, frame: called.append(number))
    try:
        with CheckpointManager(tmp_path, sigterm=True, save_every=10) as manager:
            assert [step for step in range(31) if manager.should_save(step)] == [10, 20, 30]
            assert not manager.preempted
            os.kill(os.getpid(), signal.SIGTERM)
            assert manager.should_save(3)
            assert manager.preempted
            assert called == [signal.SIGTERM]
        assert signal.getsignal(signal.SIGTERM) is not manager._preemption._handler
        os.kill(os.getpid(), signal.SIGTERM)
        assert called == [signal.SIGTERM] * 2
    finally:
        signal.signal(signal.SIGTERM, former)
    assert CheckpointManager(tmp_path).should_save(3) is False


def test_sigterm_needs_the_main_thread(tmp_path: Path) -> None:
    caught = []

    def make() -> None:
        try:
            CheckpointManager(tmp_path, sigterm=True)
        except InvalidArgument as error:
            caught.append(str(error))

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    assert "main thread" in caught[0]

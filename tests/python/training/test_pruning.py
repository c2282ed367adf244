"""Which steps stay."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weightstore import CheckpointManager, ConflictError
from weightstore._training import retention


def run(directory: Path, losses: dict[int, float], **options: object) -> list[int]:
    with CheckpointManager(directory, async_save=False, **options) as manager:
        for step, loss in losses.items():
            manager.save(step, {"x": step}, {"loss": loss})
        return manager.steps()


@pytest.mark.parametrize(
    ("options", "stay"),
    [
        ({"max_to_keep": 2}, [5, 6]),
        ({"max_to_keep": None}, [1, 2, 3, 4, 5, 6]),
        ({"max_to_keep": 1, "keep_every": 2}, [2, 4, 6]),
        ({"max_to_keep": 1, "best": "loss"}, [3, 6]),
        ({"max_to_keep": 1, "best": "loss", "best_mode": "max"}, [1, 6]),
        ({"max_to_keep": 1, "best": "loss", "keep_every": 5}, [3, 5, 6]),
    ],
)
def test_rules(tmp_path: Path, options: dict[str, object], stay: list[int]) -> None:
    assert run(tmp_path, {1: 9, 2: 5, 3: 1, 4: 4, 5: float("nan"), 6: 8}, **options) == stay


def test_the_rules_survive_a_restart(tmp_path: Path) -> None:
    run(tmp_path, {1: 0.5, 2: 3, 3: 3}, max_to_keep=2, best="loss")
    assert run(tmp_path, {4: 3, 5: 3}, max_to_keep=2, best="loss") == [1, 4, 5]
    # Also with other rules.
    assert run(tmp_path, {6: 3}, max_to_keep=1) == [6]


def test_steps_may_come_in_any_order(tmp_path: Path) -> None:
    assert run(tmp_path, {30: 1, 10: 1, 20: 1}, max_to_keep=2) == [20, 30]


@given(
    st.lists(st.integers(0, 50), unique=True, min_size=1),
    st.integers(1, 5),
    st.one_of(st.none(), st.integers(1, 7)),
    st.integers(0, 50),
)
def test_the_newest_and_the_best_never_go(steps: list[int], keep: int, every: int | None, chosen: int) -> None:
    steps = sorted(steps)
    best = steps[chosen % len(steps)]
    gone = retention.to_remove(steps, keep, every, best)
    assert not {*steps[-keep:], best} & set(gone)
    assert all(every is None or step % every for step in gone)
    assert set(gone) | {*steps[-keep:], best} | {step for step in steps if every and step % every == 0} == set(steps)


@given(st.dictionaries(st.integers(0, 9), st.one_of(st.none(), st.floats())), st.sampled_from(["min", "max"]))
def test_best(values: dict[int, float | None], mode: retention.BestMode) -> None:
    known = {step: value for step, value in values.items() if value is not None and value == value}
    best = retention.best_of(values, mode)
    if not known:
        assert best is None
        return
    assert best is not None
    extreme = (max if mode == "max" else min)(known.values())
    assert known[best] == extreme
    assert best == max(step for step, value in known.items() if value == extreme)


READER = """
import sys, weightstore
from weightstore._training.run_directory import RunDirectory
with RunDirectory(sys.argv[1]).reading(1) as path:
    print("reading", flush=True)
    sys.stdin.read()
    assert weightstore.open(path)["x"].numpy().tolist() == [1.0]
"""


def test_a_step_that_another_process_reads_stays_until_it_is_read(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    with CheckpointManager(tmp_path, max_to_keep=1, async_save=False) as manager:
        manager.save(1, {"x": torch.ones(1)})
        command = [sys.executable, "-c", READER, str(tmp_path)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader:
            assert reader.stdout is not None
            assert reader.stdout.readline() == "reading\n"
            manager.save(2, {"x": torch.ones(1)})
            assert manager.steps() == [1, 2]
            with pytest.raises(ConflictError, match="is being read"):
                manager.save(1, {}, overwrite=True)
            reader.communicate("")
            assert reader.returncode == 0
        manager.save(3, {"x": torch.ones(1)})
        assert manager.steps() == [3]


def test_a_result_can_be_read_after_its_step_was_removed(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    with CheckpointManager(tmp_path, max_to_keep=1, async_save=False) as manager:
        manager.save(1, {"x": torch.ones(1), "y": 5})
        found = manager.restore()
        manager.save(2, {"x": torch.zeros(1)})
        assert manager.steps() == [2]
        assert found is not None
        assert (found["x"].tolist(), found["y"]) == ([1.0], 5)


def test_what_dead_saves_left_is_tidied_and_other_files_stay(tmp_path: Path) -> None:
    (tmp_path / ".step-00000009~0123456789abcdef.staging").mkdir()
    (tmp_path / ".step-00000009~0123456789abcdef.staging" / "model.safetensors").write_bytes(b"half")
    (tmp_path / ".step-00000008~0123456789abcdef.removed").mkdir()
    (tmp_path / "step-00000007").mkdir()  # not complete, and not ours to remove
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "step-3").mkdir()
    manager = CheckpointManager(tmp_path, async_save=False)
    assert manager.restore() is None
    assert manager.steps() == []
    manager.save(1, {"x": 1})
    assert sorted(os.listdir(tmp_path)) == [
        ".weightstore.lock",
        "notes.txt",
        "step-00000001",
        "step-00000007",
        "step-3",
    ]


def test_old_steps_that_cannot_be_removed_are_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with CheckpointManager(tmp_path, max_to_keep=1, async_save=False) as manager:
        manager.save(1, {})
        monkeypatch.setattr(os, "rename", _refusing(os.rename, "removed"))
        manager.save(2, {})
        assert manager.latest() == 2
    assert "could not be removed" in caplog.text


def _refusing(rename, ending):
    def renamed(source, target):
        if str(target).endswith(ending):
            raise PermissionError(13, "Permission denied", source)
        rename(source, target)

    return renamed

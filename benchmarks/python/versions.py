"""Two versions of weightstore side by side: ``versions.py OTHER_PYTHON``, the interpreter of another environment.

Each round takes one sample with the other version and one with this one, in turns as to which is first. What counts is
the median of the ratios of the rounds, other / this: above 1 this version is faster. The number of rounds is even: who is
second may find the disk busy with what the first has written, and an odd number would favour one side. Both run the
benchmark code of this tree.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

if __package__ in (None, ""):  # run as a file
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from benchmarks.python import limits, model, runner
from benchmarks.python.contestants import CONTESTANTS
from benchmarks.python.pager_sample import WORK as PAGER_WORK
from benchmarks.python.saver_sample import WORK as SAVER_WORK
from benchmarks.python.task import Operation, Task
from benchmarks.python.tasks import TASKS

SAVER_TASKS = tuple(SAVER_WORK)
PAGER_TASKS = tuple(PAGER_WORK)
DEFAULT_TASKS = ("save", "save-durable", "load", "load-into", "zero-copy", "list", "module", *SAVER_TASKS, *PAGER_TASKS)

#: The command of one sample, without the interpreter.
Command = list[str]


def ours(task: Task) -> list[str]:
    return [who for who in task.contestants if who.startswith("weightstore") or "Store" in who]


def seconds(python: str, command: Command, patience: float) -> float:
    runner.settle(patience)
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [python, "-m", *command], cwd=runner.ROOT, env=environment, check=True, capture_output=True, text=True
    )
    return float(json.loads(done.stdout.splitlines()[-1])["seconds"])


def compare(label: str, command: Command, other: str, rounds: int, patience: float) -> None:
    pythons = {"other": other, "this": sys.executable}
    times: dict[str, list[float]] = {"other": [], "this": []}
    for number in range(rounds):
        for version in ("other", "this") if number % 2 == 0 else ("this", "other"):
            times[version].append(seconds(pythons[version], command, patience))
    ratios = [before / now for before, now in zip(times["other"], times["this"], strict=True)]
    medians = "  ".join(f"{version} {statistics.median(each) * 1e3:9.2f} ms" for version, each in times.items())
    print(
        f"{label:<52} {medians}  ratio {statistics.median(ratios):5.3f} ({min(ratios):.2f} to {max(ratios):.2f})",
        flush=True,
    )


def file_commands(task: Task, directory: Path, gigabytes: float, library: Path) -> list[tuple[str, Command]]:
    source = directory / f"{task.model.name}.safetensors"
    if not source.exists():
        model.write(source, task.model.shapes(int(gigabytes * 1e9)))
    commands = []
    for who in ours(task):
        if (
            task.operation not in (Operation.SAVE, Operation.SAVE_DURABLE)
            and not source.with_suffix(CONTESTANTS[who].suffix).exists()
        ):
            subprocess.run(
                [sys.executable, "-m", "benchmarks.python.files", str(source), CONTESTANTS[who].suffix],
                cwd=runner.ROOT,
                check=True,
            )
        command = ["benchmarks.python.sample", task.name, who, str(source), str(directory), str(library)]
        commands.append((f"{task.name}: {who}", command))
    return commands


def saver_commands(task: str, directory: Path, rows: int) -> list[tuple[str, Command]]:
    command = ["benchmarks.python.saver_sample", task, "weightstore", str(directory / "sample"), str(rows)]
    return [(f"saver {task}", command)]


def pager_commands(task: str, directory: Path, gigabytes: float) -> list[tuple[str, Command]]:
    path = directory / "paged.bin"
    if not path.exists():
        path.write_bytes(os.urandom(1 << 20) * int(gigabytes * 1e9 / (1 << 20)))
    return [(task, ["benchmarks.python.pager_sample", task, str(path)])]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", help="the interpreter of an environment with the other version")
    parser.add_argument("--rounds", type=int, default=8, help="an even number (8)")
    parser.add_argument("--gb", type=float, default=1, help="size of the model (1)")
    parser.add_argument("--mrows", type=float, default=4, help="million rows of a table (4)")
    parser.add_argument("--tasks", nargs="+", choices=[*(task.name for task in TASKS), *SAVER_TASKS, *PAGER_TASKS])
    parser.add_argument("--patience", type=float, default=2, help="seconds to wait for a quiet machine (2)")
    parser.add_argument("--dir", type=Path, help="where to put files")
    arguments = parser.parse_args()
    if arguments.rounds < 2 or arguments.rounds % 2:
        parser.error(f"--rounds {arguments.rounds}: an even number of rounds, each version first in half of them")
    chosen = arguments.tasks or DEFAULT_TASKS
    by_name = {task.name: task for task in TASKS}
    with tempfile.TemporaryDirectory(prefix="weightstore-bench-", dir=arguments.dir) as name:
        directory = Path(name)
        library = limits.compile_library(directory)
        for task in chosen:
            if task in SAVER_TASKS:
                commands = saver_commands(task, directory, int(arguments.mrows * 1e6))
            elif task in PAGER_TASKS:
                commands = pager_commands(task, directory, arguments.gb)
            else:
                commands = file_commands(by_name[task], directory, arguments.gb, library)
            for label, command in commands:
                compare(label, command, arguments.other, arguments.rounds, arguments.patience)
    return 0


if __name__ == "__main__":
    sys.exit(main())

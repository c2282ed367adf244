"""Runs samples: each in a fresh process, rounds interleaved, so that a slow minute of the machine hits everybody."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.python import limits, model
from benchmarks.python.contestants import CONTESTANTS
from benchmarks.python.results import Result, Results
from benchmarks.python.task import Operation, Task

ROOT = Path(__file__).resolve().parents[2]
SAMPLE_TIMEOUT = 600

_SAVES = (Operation.SAVE, Operation.SAVE_DURABLE)


class SampleFailed(Exception):
    pass


def _run(*arguments: str) -> str:
    process = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=SAMPLE_TIMEOUT,
        check=False,
    )
    if process.returncode:
        lines = process.stderr.strip().splitlines() or [f"exit status {process.returncode}"]
        raise SampleFailed(lines[-1])
    return process.stdout


def _busy_seconds() -> float:
    """Processor time that all processes of the machine have used."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    idle = int(fields[3]) + int(fields[4])
    return (sum(map(int, fields[:8])) - idle) / os.sysconf("SC_CLK_TCK")


def settle(patience: float) -> None:
    """Writes dirty pages out, then waits for a quiet machine, `patience` seconds at most."""
    os.sync()
    window = 0.25
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        before = _busy_seconds()
        time.sleep(window)
        if _busy_seconds() - before < 0.2 * window:
            return


class Runner:
    def __init__(
        self, directory: Path, *, gigabytes: float, repeats: int, patience: float, log: Callable[[str], None]
    ) -> None:
        self.directory = directory
        self.gigabytes = gigabytes
        self.repeats = repeats
        self.patience = patience
        self.log = log
        self.library = limits.compile_library(directory)

    def run(self, task: Task) -> Results:
        results = Results()
        source = self._source(task)
        for who in task.contestants:
            try:
                if task.operation not in _SAVES and CONTESTANTS[who].suffix != source.suffix:
                    _run("benchmarks.python.files", str(source), CONTESTANTS[who].suffix)
            except SampleFailed as error:
                results.skipped[who] = str(error)
        for number in range(self.repeats):
            self.log(f"{task.name}: round {number + 1} of {self.repeats}")
            for who in task.contestants:
                if who not in results.skipped:
                    self._sample(task, who, source, results)
        return results

    def _sample(self, task: Task, who: str, source: Path, results: Results) -> None:
        settle(self.patience)
        try:
            line = _run("benchmarks.python.sample", task.name, who, str(source), str(self.directory), str(self.library))
        except (SampleFailed, subprocess.TimeoutExpired) as error:
            results.skipped[who] = str(error)
            results.pop(who, None)
            return
        sample = json.loads(line.splitlines()[-1])
        if who not in results:
            file = source.with_suffix(CONTESTANTS[who].suffix)
            header = model.header_bytes(file) if file.suffix in (".safetensors", ".bpk") and file.exists() else 0
            results[who] = Result(who, sample["payload_bytes"], header, sample["largest_bytes"])
        result = results[who]
        result.samples.append(sample["seconds"])
        result.extra_bytes = max(result.extra_bytes, sample["extra_bytes"])

    def _source(self, task: Task) -> Path:
        path = self.directory / f"{task.model.name}.safetensors"
        if not path.exists():
            self.log(f"making {path.name}")
            model.write(path, task.model.shapes(int(self.gigabytes * 1e9)))
            os.sync()
        return path

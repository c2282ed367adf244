"""Prints one table: weightstore, its peers, and what the machine can do."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import sys
import tempfile
from pathlib import Path

if __package__ in (None, ""):  # run as a file
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from benchmarks.python import table
from benchmarks.python.results import Results
from benchmarks.python.runner import Runner
from benchmarks.python.task import Task
from benchmarks.python.tasks import TASKS

_PACKAGES = (
    "weightstore",
    "torch",
    "numpy",
    "safetensors",
    "fastsafetensors",
    "runai-model-streamer",
    "tensorizer",
    "tensorstore",
)


def _version(package: str) -> str:
    try:
        return f"{package} {importlib.metadata.version(package)}"
    except importlib.metadata.PackageNotFoundError:
        return f"{package} missing"


def _machine() -> str:
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return (
        f"{os.cpu_count()} processors, {memory / 2**30:.0f} GiB, Linux {platform.release()}, "
        f"Python {platform.python_version()}; " + ", ".join(map(_version, _PACKAGES))
    )


def _as_json(measured: list[tuple[Task, Results]]) -> dict[str, object]:
    return {
        "machine": _machine(),
        "tasks": {
            task.name: {
                "results": {
                    who: {
                        "samples": result.samples,
                        "extra_bytes": result.extra_bytes,
                        "payload_bytes": result.payload_bytes,
                        "header_bytes": result.header_bytes,
                    }
                    for who, result in results.items()
                },
                "left_out": results.skipped,
            }
            for task, results in measured
        },
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gb", type=float, help="size of the model (2); the tasks squares-* have a model of their own")
    parser.add_argument("--repeats", type=int, help="samples of each contestant (5)")
    parser.add_argument("--quick", action="store_true", help="200 MB and 2 repeats")
    parser.add_argument("--tasks", nargs="+", choices=[task.name for task in TASKS], help="only these")
    parser.add_argument("--only", nargs="+", metavar="TEXT", help="only contestants whose name contains one of these")
    parser.add_argument("--patience", type=float, default=3, help="seconds to wait for a quiet machine (3)")
    parser.add_argument("--dir", type=Path, help="where to put files, four times the model and more")
    parser.add_argument("--json", type=Path, help="also write all samples here")
    return parser.parse_args()


def main() -> int:
    arguments = _arguments()
    gigabytes = arguments.gb or (0.2 if arguments.quick else 2)
    repeats = arguments.repeats or (2 if arguments.quick else 5)
    measured = []
    with tempfile.TemporaryDirectory(prefix="weightstore-bench-", dir=arguments.dir) as directory:
        runner = Runner(
            Path(directory),
            gigabytes=gigabytes,
            repeats=repeats,
            patience=arguments.patience,
            log=lambda line: print(line, file=sys.stderr, flush=True),
        )
        for task in TASKS:
            if not arguments.tasks or task.name in arguments.tasks:
                measured.append((task, runner.run(task.restricted(arguments.only))))
                # After each task, so that a run that is cut short is not lost.
                if arguments.json:
                    arguments.json.write_text(json.dumps(_as_json(measured), indent=1))
    print(_machine())
    print(f"model of {gigabytes:g} GB; best time and highest memory of {repeats} samples\n")
    print(table.measurements(measured))
    print()
    print(table.verdicts(measured))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Runs pytest in an environment, and counts what came out by file, class and test."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import NamedTuple

SHIM = Path(__file__).parent / "shim"


class Counts(NamedTuple):
    passed: frozenset[str]
    skipped: frozenset[str]
    failed: frozenset[str]

    def __str__(self) -> str:
        return f"{len(self.passed)} passed, {len(self.skipped)} skipped, {len(self.failed)} failed"


class Run(NamedTuple):
    counts: Counts
    output: str


def run_pytest(
    arguments: list[str], *, work: Path, path: list[Path], python: Path | str = sys.executable, **variables: str
) -> Run:
    """Runs pytest in the directory `work`, with `path` first on PYTHONPATH. A run without a report is an error."""
    report = work / "report.xml"
    report.unlink(missing_ok=True)
    environment = {**os.environ, **variables}
    environment["PYTHONPATH"] = os.pathsep.join([*map(str, path), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *arguments]
    finished = subprocess.run(
        command, cwd=work, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if not report.exists():
        raise SystemExit(
            f"{' '.join(command)} ended with {finished.returncode} and wrote no report:\n{finished.stdout}"
        )
    return Run(_read(report), finished.stdout)


def _read(report: Path) -> Counts:
    sorts: dict[str, set[str]] = {"passed": set(), "skipped": set(), "failed": set()}
    cases = list(ElementTree.parse(report).getroot().iter("testcase"))
    for case in cases:
        # The class name begins with the path of the file, with dots.
        name = f"{case.get('classname', '').removeprefix('tests.')}.{case.get('name')}"
        if case.find("failure") is not None or case.find("error") is not None:
            sorts["failed"].add(name)
        elif case.find("skipped") is not None:
            sorts["skipped"].add(name)
        else:
            sorts["passed"].add(name)
    if len(cases) != sum(map(len, sorts.values())):
        raise SystemExit(f"{report}: {len(cases)} tests, but only {sum(map(len, sorts.values()))} different names")
    return Counts(*map(frozenset, sorts.values()))

"""`weightstore html`, as people run it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from support.page_files import small_model


def run(directory: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "weightstore", "html", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=directory)


def test_page_of_one_and_of_two_files(tmp_path):
    small_model(tmp_path / "a.safetensors")
    small_model(tmp_path / "b.safetensors", seed=1)
    ran = run(tmp_path, "a.safetensors")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "report.html\n", "")
    assert (tmp_path / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    ran = run(tmp_path, "a.safetensors", "b.safetensors", "-o", "changes.html", "--values")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "changes.html\n", "")
    assert '"differences":{"' in (tmp_path / "changes.html").read_text(encoding="utf-8")


def test_status_2_and_one_line_when_it_cannot(tmp_path):
    small_model(tmp_path / "a.safetensors")
    (tmp_path / "mine.html").write_text("mine")
    (tmp_path / "broken.safetensors").write_bytes(b"\xff" * 100)
    for arguments, message in (
        (("a.safetensors", "-o", "mine.html"), "not a page of weightstore"),
        (("none.safetensors",), "No such file"),
        (("broken.safetensors",), "broken.safetensors"),
        (("a.safetensors", "-o", "no/folder.html"), "No such file"),
    ):
        ran = run(tmp_path, *arguments)
        assert ran.returncode == 2
        assert message in ran.stderr
        assert len(ran.stderr.splitlines()) == 1
    assert (tmp_path / "mine.html").read_text() == "mine"
    assert not (tmp_path / "report.html").exists()
    assert run(tmp_path, "a.safetensors", "-o", "mine.html", "--overwrite").returncode == 0

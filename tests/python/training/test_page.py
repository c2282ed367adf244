"""The code of docs/training.md runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs/training.md"


def test_snippets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    snippets = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(snippets) == 5
    names = {"__name__": __name__}
    for snippet in snippets:
        exec(compile(snippet, PAGE.name, "exec"), names)
    assert capsys.readouterr().out.startswith("40 ")
    exec(compile(snippets[0], PAGE.name, "exec"), names)
    assert names["start"] == 41

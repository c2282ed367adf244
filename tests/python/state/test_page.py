"""The code of docs/state.md runs."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs/state.md"


def test_snippets(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    snippets = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(snippets) == 3
    names = {"__name__": __name__}
    for snippet in snippets:
        exec(compile(snippet, PAGE.name, "exec"), names)

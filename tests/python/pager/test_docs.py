"""Every snippet of docs/pager.md runs, in order, in one directory, and prints what its comments say."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "pager.md"


def test_snippets(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    snippets = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(snippets) >= 4
    names: dict = {"__name__": "docs"}
    for snippet in snippets:
        exec(compile(snippet, PAGE.name, "exec"), names)
        promised = re.findall(r"^print\(.*?\)  # (.*)$", snippet, re.MULTILINE)
        assert capsys.readouterr().out.splitlines() == promised


def test_every_counter_is_explained():
    import weightstore

    pager = weightstore.LayerPager(b"", {})
    text = PAGE.read_text(encoding="utf-8")
    for name in pager.stats():
        short = "_" + name.removeprefix("prefetch_") if name.startswith("prefetch_") else name
        assert f"`{name}`" in text or f"`{short}`" in text or name == "policy_state", name

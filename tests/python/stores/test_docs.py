"""Every snippet of docs/stores.md runs, in order, in one directory; where a comment shows a value, that is the value."""

import ast
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "stores.md"


def promised(line: str) -> object:
    """The value in a comment: `store.keys()  # ['a', 'b']`, `x.shape  # (8, 4): why`. None when there is none."""
    match = re.search(r"#\s+([\[{(].*?[\]})])(:.*)?$", line)
    return None if match is None else ast.literal_eval(match[1])


def run(snippet: str, names: dict) -> int:
    """Runs a snippet; returns how many promises it kept."""
    kept = 0
    for statement in ast.parse(snippet).body:
        value = promised(snippet.splitlines()[statement.end_lineno - 1])
        if isinstance(statement, ast.Expr) and value is not None:
            assert eval(compile(ast.Expression(statement.value), PAGE.name, "eval"), names) == value
            kept += 1
        else:
            exec(compile(ast.Module([statement], []), PAGE.name, "exec"), names)
    return kept


def test_snippets(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    snippets = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(snippets) >= 9
    names: dict = {"__name__": "docs"}
    assert sum(run(snippet, names) for snippet in snippets) == 5

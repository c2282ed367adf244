"""docs/page.md: its snippets run, its commands work, and it tells every field of the data."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np

import weightstore
import weightstore.numpy
from weightstore._cli.main import main as weightstore_command

PAGE = (Path(__file__).parents[3] / "docs" / "page.md").read_text(encoding="utf-8")
SCHEMA = json.loads((Path(weightstore.__file__).parent / "_page/viewer/data.schema.json").read_text(encoding="utf-8"))


def test_snippets(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (snippet,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(snippet, "page.md", "exec"), {"__name__": "docs"})
    assert (tmp_path / "model.html").stat().st_size > 50_000


def test_commands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    for number, name in enumerate(("model", "before", "after")):
        weightstore.numpy.save_file({"w": np.full((3, 3), number, "f4")}, f"{name}.safetensors")
    (commands,) = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    for command in commands.splitlines():
        assert weightstore_command(shlex.split(command)[1:]) == 0
    assert (tmp_path / "changes.html").exists()
    assert opened == [(tmp_path / "model.html").as_uri()]


def test_every_field_is_told():
    fields: set[str] = set()
    pending: list[object] = [SCHEMA]
    while pending:
        part = pending.pop()
        if isinstance(part, dict):
            fields |= part.get("properties", {}).keys()
            pending += part.values()
    assert {"left_out", "histogram", "max_relative", "row_step"} <= fields
    assert fields <= set(re.findall(r"`(\w+)`", PAGE))

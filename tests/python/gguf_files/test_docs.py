"""The example of docs/formats.md runs."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[3] / "docs" / "formats.md"


def test_the_example_of_gguf(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    section = PAGE.read_text(encoding="utf-8").split("### GGUF metadata")[1].split("\n### ")[0]
    (example,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    exec(example, {})

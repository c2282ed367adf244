"""The viewer's own tests, by node; and what holds for its sources."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import weightstore
from weightstore._page.document import MODULES

VIEWER = Path(weightstore.__file__).parent / "_page" / "viewer"


def test_functions() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    tests = Path(__file__).with_name("viewer_test.mjs")
    ran = subprocess.run(
        [node, "--test", tests], env={**os.environ, "VIEWER": str(VIEWER)}, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert int(re.search(r"^# pass (\d+)$", ran.stdout, re.MULTILINE)[1]) >= 15


def test_modules_are_listed_and_import_from_those_before() -> None:
    assert {path.stem for path in VIEWER.glob("*.mjs")} == set(MODULES)
    for number, name in enumerate(MODULES):
        text = (VIEWER / f"{name}.mjs").read_text(encoding="utf-8")
        imported = re.findall(r'^import \{[^}]*\} from "\./(\w+)\.mjs";$', text, re.MULTILINE)
        assert set(imported) <= set(MODULES[:number]), name
        assert len(imported) == len(re.findall(r"\bimport\b", re.sub(r"//.*|/\*.*?\*/", "", text))), name


def test_sources_make_no_markup_from_text_and_reach_for_nothing() -> None:
    banned = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval|new Function|fetch|XMLHttpRequest|WebSocket|https?://"
    for name in MODULES:
        text = (VIEWER / f"{name}.mjs").read_text(encoding="utf-8")
        assert not re.search(banned, text.replace('"http://www.w3.org/2000/svg"', "")), name
    assert not re.search(r"url\(|@import|https?://", (VIEWER / "viewer.css").read_text(encoding="utf-8"))

"""Which packages of the Python package may import which, and how large they may become."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import weightstore

ROOT = Path(weightstore.__file__).parent
LARGEST = 16
# Each package, and the packages it may import. What lies beside them (`numpy`, `_pager`, `_cli`, ...) may import all.
BELOW = {
    "_tensors": set(),
    "_files": {"_tensors"},
    "_modules": {"_tensors", "_files"},
    "stores": {"_tensors", "_files", "_modules"},
    "_checkpoints": {"_tensors", "_files"},
}
FOR_ALL = {"_core", "_installed", "errors"}


def imported(file: Path) -> Iterator[str]:
    """The packages and modules at the root that a file imports, also where only a type checker does."""
    package = ("weightstore", *file.relative_to(ROOT).parts[:-1])
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = [*package[: len(package) - node.level + 1]] if node.level else []
            base += node.module.split(".") if node.module else []
            names = [[*base, alias.name] for alias in node.names]
        else:
            continue
        yield from (name[1] if len(name) > 1 else "weightstore" for name in names if name[0] == "weightstore")


def test_imports_go_one_way():
    for package, below in BELOW.items():
        for file in (ROOT / package).rglob("*.py"):
            assert set(imported(file)) <= {package} | below | FOR_ALL, file


def test_packages_are_small():
    found = {file.parent for file in ROOT.rglob("*.py")}
    assert {path.name for path in found if path.parent == ROOT} == set(BELOW)
    for package in found:
        assert len([file for file in package.glob("*.py") if file.name != "__init__.py"]) <= LARGEST, package


def test_private_packages_hide_nothing():
    """A thing is imported from the module that has it."""
    for file in ROOT.rglob("_*/**/__init__.py"):
        assert len(ast.parse(file.read_text(encoding="utf-8")).body) == 1, file


def test_files_and_handles_keep_what_is_theirs():
    """The rest of the package reads through an OpenSource, which it gets from open_source(), source_of() or origin_of()."""
    theirs = {"_reader", "_source", "_number", "_selection"}
    for file in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr in theirs and ast.unparse(node.value) != "self":
                assert file.name in ("file.py", "handle.py"), f"{file}:{node.lineno}"

"""Which packages of the Python package may import which, and how large they may become."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import weightstore

ROOT = Path(weightstore.__file__).parent
FILES = [file.relative_to(ROOT) for file in ROOT.rglob("*.py")]
LARGEST = 16
# Each package, and the packages it may import. What lies beside them (`numpy`, `_pager`, ...) may import all.
BELOW = {
    "_tensors": set(),
    "_page": set(),
    "_chunks": {"_tensors"},
    "_files": {"_tensors", "_page", "_chunks"},
    "_modules": {"_tensors", "_files"},
    "stores": {"_tensors", "_files", "_modules"},
    "_torch_library": set(),
    "_checkpoints": {"_tensors", "_files", "_torch_library"},
    "_dcp": {"_tensors", "_chunks", "_files"},
    "_state": {"_tensors", "_files"},
    "_training": {"_tensors", "_files", "_modules", "_state", "_checkpoints"},
    "_convert": {"_tensors", "_chunks", "_files", "_modules"},
    "_look": {"_tensors", "_files", "_page"},
    "_cli": {"_tensors", "_files", "_modules", "_convert", "_look", "_torch_library"},
    "_offload": {"_tensors", "_files", "_modules", "stores", "_pager", "_policies", "_tensor_roles"},
}
FOR_ALL = {"_core", "_installed", "errors", "__version__"}


def tree(file: Path) -> ast.Module:
    return ast.parse((ROOT / file).read_text(encoding="utf-8"))


def imported(file: Path) -> Iterator[Path]:
    """What a file imports from this package, as paths of names; also where only a type checker does."""
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = [*file.parents][node.level - 1].joinpath(*(node.module or "").split("."))
            yield from (base / alias.name for alias in node.names)


def test_imports_are_relative():
    for file in FILES:
        absolute = [node for node in ast.walk(tree(file)) if isinstance(node, (ast.Import, ast.ImportFrom))]
        assert not any(ast.unparse(node).split()[1].startswith("weightstore") for node in absolute), file


def test_packages_import_one_way():
    for file in FILES:
        if (package := file.parts[0]) in BELOW:
            assert {path.parts[0] for path in imported(file)} <= {package} | BELOW[package] | FOR_ALL, file


def test_modules_import_one_way():
    def module(path: Path) -> Path:
        """The file of a module, or of one that has the name."""
        candidates = (Path(f"{path}.py"), path / "__init__.py", Path(f"{path.parent}.py"), path.parent / "__init__.py")
        return next(file for file in candidates if file in FILES)

    graph = {file: {module(path) for path in imported(file) if path.parts[0] != "_core"} - {file} for file in FILES}
    assert len(list(TopologicalSorter(graph).static_order())) == len(FILES)  # raises CycleError


def test_packages_are_small():
    packages = [file.parent for file in FILES if file.name != "__init__.py"]
    assert {package.parts[0] for package in packages if package.parts} == set(BELOW)
    assert max(map(packages.count, packages)) <= LARGEST


def test_private_packages_hide_nothing():
    """A thing is imported from the module that has it."""
    for file in FILES:
        if file.name == "__init__.py" and file.parts[0].startswith("_") and len(file.parts) > 1:
            assert len(tree(file).body) == 1, file


def test_files_and_handles_keep_what_is_theirs():
    """The rest of the package reads through an OpenSource, which it gets from open_source(), source_of() or origin_of()."""
    theirs = {"_reader", "_source", "_number", "_selection"}
    for file in FILES:
        for node in ast.walk(tree(file)):
            if isinstance(node, ast.Attribute) and node.attr in theirs and ast.unparse(node.value) != "self":
                assert file.name in ("file.py", "handle.py"), f"{file}:{node.lineno}"

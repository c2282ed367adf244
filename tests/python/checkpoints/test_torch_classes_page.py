"""docs/torch-classes.md: it has every class and method that is registered, with its arguments, and no others; its code runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from support.torch_classes import torch

REPOSITORY = Path(__file__).parents[3]
PAGE = (REPOSITORY / "docs/torch-classes.md").read_text(encoding="utf-8")
LIBRARY = (REPOSITORY / "cpp/torch/library.cc").read_text(encoding="utf-8")


def documented() -> dict[str, set[str]]:
    """Class to the signatures in the table below its heading."""
    found: dict[str, set[str]] = {}
    for heading, text in re.findall(r"^## (\w+)\n(.*?)(?=^## )", PAGE, re.MULTILINE | re.DOTALL):
        if re.match(r"[A-Z]\w+$", heading) and (rows := re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)):
            assert len(rows) == len(set(rows))
            found[heading] = set(rows)
    return found


def signature(schema: Any, owner: str) -> str:
    """The schema of a method as the page writes it."""
    text = str(schema).replace("__torch__.torch.classes.store.", "")
    name, arguments, result = re.fullmatch(rf"(\w+)\({owner} _0(?:, )?(.*)\) -> (.*) _0\)?", text).groups()
    result = "" if result == "NoneType" or name == "__init__" else f" -> {result.removeprefix('(')}"
    return f"{owner if name == '__init__' else name}({arguments}){result}"


def objects(directory: Path) -> list[Any]:
    store = torch.classes.store
    table = store.HashTable("user", [1], torch.float32)
    table.insert(torch.tensor([1]), torch.ones(1, 1))
    saver = store.Saver(0, 1, 1, str(directory))
    blocks = saver.make_write_blocks({"user": table}, {})
    saver.save(blocks)
    loader = store.Loader(str(directory), 1, {}, {})
    return [table, table.snapshot(), blocks[0], saver, loader, store.CheckpointReader(str(directory))]


def registered(directory: Path) -> dict[str, set[str]]:
    found = {}
    for made in objects(directory):
        name = made._type().name()
        methods = {method for method in made._method_names() if not method.endswith("_getter")}
        found[name] = {signature(made._get_method(method).schema, name) for method in methods}
        found[name] |= {method.removesuffix("_getter") for method in set(made._method_names()) - methods}
    return found


def test_the_page_has_what_is_registered_and_nothing_else(tmp_path: Path) -> None:
    expected = registered(tmp_path)
    assert sorted(expected) == sorted(re.findall(r'm\.class_<\w+>\("(\w+)"\)', LIBRARY))
    for name, signatures in expected.items():
        assert documented()[name] == signatures
    assert sorted(documented()) == sorted(expected)


def test_the_page_has_every_method_in_the_source() -> None:
    """Also those of a class of which this test makes no object."""
    for name, text in re.findall(r'm\.class_<\w+>\("(\w+)"\)(.*?);\n', LIBRARY, re.DOTALL):
        methods = set(re.findall(r'\.def(?:_readonly)?\("(\w+)"', text)) | ({name} if "torch::init" in text else set())
        assert {row.partition("(")[0] for row in documented()[name]} == methods
    for function in re.findall(r'm\.def\("(\w+)\(', LIBRARY):
        assert f"torch.ops.store.{function}()" in PAGE


@pytest.mark.parametrize("name", ["Saver", "Loader"])
def test_options_of_configure(name: str) -> None:
    """The error for an unknown option lists all options."""
    store = torch.classes.store
    made = store.Saver(0, 1, 1, ".") if name == "Saver" else store.Loader(".", 1, {}, {})
    with pytest.raises(RuntimeError) as caught:
        made.configure('{"no such option": 1}')
    options = re.findall(r"\w+", re.sub(r"\(.*?\)| and ", " ", str(caught.value).partition("there are ")[2]))
    assert len(options) >= 2
    section = re.search(rf"^## {name}\n(.*?)(?=^## )", PAGE, re.MULTILINE | re.DOTALL)[1]
    row = next(line for line in section.splitlines() if line.startswith("| `configure"))
    for option in options:
        assert f"`{option}`" in row


def test_python_code(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    program = "\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
    # TorchScript looks for the source of what it compiles in files.
    (tmp_path / "page.py").write_text(program)
    monkeypatch.syspath_prepend(tmp_path)
    import page  # type: ignore[import-not-found]

    assert torch.equal(page.w, torch.ones(2, 2))
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir() and path.name != "__pycache__") == [
        "checkpoint",
        "scripted",
    ]
    assert (tmp_path / "job.pt").exists()


def test_the_program_is_the_one_that_is_tested() -> None:
    (program,) = re.findall(r"```cpp\n(.*?)```", PAGE, re.DOTALL)
    assert program == (REPOSITORY / "tests/consumer/torchscript.cc").read_text(encoding="utf-8")

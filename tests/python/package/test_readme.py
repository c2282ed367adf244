"""Every snippet of the README runs, in order, in one directory; and so does the example."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from weightstore._cli.main import main as weightstore_command

REPOSITORY = Path(__file__).parents[3]


def snippets(language: str) -> list[str]:
    blocks = re.findall(r"```(\w+)\n(.*?)```", (REPOSITORY / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    return [text for name, text in blocks if name == language]


def test_python_and_cpp_snippets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    assert len(snippets("python")) >= 4
    names: dict[str, object] = {}
    for snippet in snippets("python"):
        exec(compile(snippet, "README.md", "exec"), names)
    assert "['bias', 'weight']" in capsys.readouterr().out

    commands = [
        line
        for text in snippets("sh")
        for line in text.splitlines()
        if line.startswith("weightstore ") and "build-torch" not in line
    ]
    assert commands
    for command in commands:
        assert weightstore_command(shlex.split(command)[1:]) == 0

    (program,) = snippets("cpp")
    lines = ["#include <weightstore/weightstore.h>", "#include <vector>", "int main() {", program]
    lines += ["return weight.size() == 1000 * 64 * 4 ? 0 : 1;", "}"]
    Path("program.cc").write_text("\n".join(lines))
    pkg_config = shutil.which("pkg-config", path=str(Path(sys.executable).parent)) or shutil.which("pkg-config")
    if pkg_config is None:
        pytest.skip("pkg-config is not installed")
    directory = subprocess.check_output([sys.executable, "-m", "weightstore", "pkgconfig-dir"], text=True).strip()
    flags = subprocess.check_output(
        [pkg_config, "--cflags", "--libs", "weightstore"], text=True, env={**os.environ, "PKG_CONFIG_PATH": directory}
    )
    compiler = os.environ.get("CXX", "g++")
    subprocess.run([compiler, "-std=c++20", "program.cc", "-o", "program", *shlex.split(flags)], check=True)
    subprocess.run(["./program"], check=True)


def test_links_lead_somewhere() -> None:
    for page in [
        REPOSITORY / "README.md",
        *(REPOSITORY / "docs").glob("*.md"),
        *(REPOSITORY / "benchmarks").glob("*.md"),
    ]:
        prose = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        for target in re.findall(r"\]\(([^)#]+)\)", prose) + re.findall(r'<img src="([^"]+)"', prose):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}, which is not there"


def test_quickstart() -> None:
    pytest.importorskip("torch")
    output = subprocess.check_output([sys.executable, REPOSITORY / "examples/quickstart.py"], text=True)
    assert output.count("same output: True") == 3
    assert output.count(": equal") == 2
    assert "DIFFERENT" not in output


def test_the_first_command_installs_the_wheel() -> None:
    """`make test-wheel` runs the first screen in a new environment."""
    assert snippets("sh")[0].split("#")[0].split() == ["pip", "install", "--find-links", "dist", "weightstore"]

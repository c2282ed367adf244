"""docs/cli.md is made of the help texts, completion scripts name every option, and output fits where it goes."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.command import SCRIPT, run
from weightstore._cli.completion import options_of, verbs_of
from weightstore._cli.main import MODULES, make_parser
from weightstore._cli.progress import PlainBar

REPOSITORY = Path(__file__).parents[3]


def test_the_page_is_made_of_the_help_texts():
    script = REPOSITORY / "docs/make_cli_page.py"
    made = subprocess.run([sys.executable, script, "-"], capture_output=True, text=True, check=True).stdout
    page = (REPOSITORY / "docs/cli.md").read_text(encoding="utf-8")
    assert page == made, "run python docs/make_cli_page.py"


def test_every_verb_has_help_examples_and_its_module():
    parsers = dict(verbs_of(make_parser()))
    assert list(parsers) == list(MODULES)
    for verb, parser in parsers.items():
        assert dict(verbs_of(make_parser(verb))).keys() <= parsers.keys()
        assert verb in dict(verbs_of(make_parser(verb)))
        for option in options_of(parser):
            assert option.help, (verb, option)
        examples = parser.get_default("examples")
        assert examples or MODULES[verb] == "installation.directories", verb
        assert {"--debug"} <= {flag for option in options_of(parser) for flag in option.flags}
    asked = {"inspect", "list", "show", "convert", "diff", "verify", "set-metadata", "build-torch"}
    assert {v for v, p in parsers.items() if any("--json" in o.flags for o in options_of(p))} == asked


def complete(line: str) -> list[str]:
    words = line.split(" ")
    quoted = " ".join(f"'{word}'" for word in words)
    script = f"""
eval "$('{SCRIPT}' completion bash)"
COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _weightstore 2>/dev/null; printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout.split()


def test_bash_completes(tmp_path, monkeypatch):
    assert complete("weightstore ins") == ["inspect"]
    assert "set-metadata" in complete("weightstore ")
    assert complete("weightstore convert --top") == ["--top-level-key"]
    assert complete("weightstore list --sort si") == ["size"]
    assert complete("weightstore completion z") == ["zsh"]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.safetensors").touch()
    assert complete("weightstore list mod") == ["model.safetensors"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_take_their_scripts(shell):
    script = run("completion", shell).out
    assert "inspect" in script
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True)


def on_terminal(*arguments: str, env: dict[str, str] | None = None) -> bytes:
    """What the command writes to a terminal."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", **(env or {})}
    process = subprocess.Popen(
        [SCRIPT, *arguments], stdout=theirs, stderr=theirs, stdin=subprocess.DEVNULL, env=environment
    )
    os.close(theirs)
    seen = b""
    while True:
        try:
            data = os.read(ours, 65536)
        except OSError:
            break
        if not data:
            break
        seen += data
    assert process.wait() == 0
    os.close(ours)
    return seen


def test_colours_only_on_a_terminal_and_with_rich(files):
    path = str(files["safetensors"])
    without = on_terminal("inspect", path, env={"PYTHONPATH": str(Path(__file__).parent / "without_rich")})
    assert b"\x1b[" not in without
    assert run("inspect", path).out.replace("\n", "\r\n").encode() == without
    pytest.importorskip("rich")
    assert b"\x1b[1m" in on_terminal("inspect", path)
    assert b"\x1b[1m" not in on_terminal("inspect", path, env={"TERM": "dumb"})


def test_the_bar_says_rate_and_time_left(capsys):
    times = iter([0.0, 2.0, 2.01, 4.0])
    bar = PlainBar("converting", clock=lambda: next(times))
    bar.report(1_000_000, 4_000_000, "a\x1b[31m")
    bar.report(1_000_001, 4_000_000, "too soon")
    bar.report(4_000_000, 4_000_000, "b")
    bar.end()
    first, second = capsys.readouterr().err.split("\r")[1:3]
    assert first == r"converting  25%  1.0 MB of 4.0 MB  500.0 kB/s  0:06 left  'a\x1b[31m'"
    assert second.startswith("converting 100%  4.0 MB of 4.0 MB  1.0 MB/s  0:00 left  b")


def test_progress_is_for_terminals_or_on_request(files, tmp_path):
    target = str(tmp_path / "m.bpk")
    assert run("convert", files["safetensors"], target).err == ""
    shown = on_terminal(
        "convert",
        str(files["safetensors"]),
        target,
        "--overwrite",
        env={"PYTHONPATH": str(Path(__file__).parent / "without_rich")},
    )
    assert b"converting 100%" in shown
    assert b"converting" not in on_terminal(
        "convert", str(files["safetensors"]), target, "--overwrite", "--no-progress"
    )

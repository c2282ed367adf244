"""``weightstore completion``: scripts that complete verbs, options and files in a shell."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import NamedTuple

from . import options


class Option(NamedTuple):
    flags: tuple[str, ...]
    help: str
    choices: tuple[str, ...]
    takes_value: bool


def add_to(verbs: options.Verbs) -> None:
    parser = options.add_verb(
        verbs,
        "completion",
        _completion,
        "print a script that completes verbs, options and file names in a shell",
        (
            'eval "$(weightstore completion bash)"    # in ~/.bashrc',
            'eval "$(weightstore completion zsh)"     # in ~/.zshrc, after compinit',
            "weightstore completion fish > ~/.config/fish/completions/weightstore.fish",
        ),
    )
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))


def _completion(arguments: argparse.Namespace) -> int:
    from .main import make_parser

    verbs = dict(verbs_of(make_parser()))
    print({"bash": _bash, "zsh": _zsh, "fish": _fish}[arguments.shell](verbs), end="")
    return 0


def verbs_of(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """The verbs of the command, and their parsers."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()


def options_of(parser: argparse.ArgumentParser) -> list[Option]:
    return [
        Option(
            tuple(action.option_strings),
            (action.help or "").replace("%%", "%"),
            tuple(map(str, action.choices or ())),
            action.nargs != 0 and action.option_strings[-1] != "--help",
        )
        for action in parser._actions
        if action.option_strings
    ]


def _flags(parser: argparse.ArgumentParser) -> str:
    return " ".join(flag for option in options_of(parser) for flag in option.flags)


def _bash(verbs: dict[str, argparse.ArgumentParser]) -> str:
    cases = []
    for verb, parser in verbs.items():
        values = "".join(
            f"\n        {verb}:{flag}) COMPREPLY=($(compgen -W '{' '.join(option.choices)}' -- \"$word\")); return ;;"
            for option in options_of(parser)
            for flag in option.flags
            if option.choices
        )
        cases.append((verb, _flags(parser), values))
    choices = "".join(values for _, _, values in cases)
    flags = "".join(f"\n        {verb}) flags='{flags}' ;;" for verb, flags, _ in cases)
    return f"""_weightstore() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" verb="${{COMP_WORDS[1]}}" flags=
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W '{" ".join(verbs)} --help --version' -- "$word"))
        return
    fi
    case "$verb:$before" in{choices}
        completion:completion) COMPREPLY=($(compgen -W 'bash zsh fish' -- "$word")); return ;;
    esac
    case "$verb" in{flags}
    esac
    case "$word" in
        -*) COMPREPLY=($(compgen -W "$flags" -- "$word")) ;;
        *) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$word")) ;;
    esac
}}
complete -F _weightstore weightstore
"""


def _zsh(verbs: dict[str, argparse.ArgumentParser]) -> str:
    return "autoload -U +X bashcompinit && bashcompinit\n" + _bash(verbs)


def _fish(verbs: dict[str, argparse.ArgumentParser]) -> str:
    def quoted(text: str) -> str:
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

    lines = []
    for verb, parser in verbs.items():
        summary = (parser.description or "").partition(";")[0].rstrip(".")
        lines.append(f"complete -c weightstore -n __fish_use_subcommand -a {verb} -d {quoted(summary)}")
        for option in options_of(parser):
            line = f"complete -c weightstore -n '__fish_seen_subcommand_from {verb}'"
            for flag in option.flags:
                line += f" -l {flag[2:]}" if flag.startswith("--") else f" -s {flag[1:]}"
            if option.choices:
                line += f" -x -a '{' '.join(option.choices)}'"
            elif option.takes_value:
                line += " -r"
            lines.append(f"{line} -d {quoted(option.help.partition(';')[0])}")
    return "\n".join(lines) + "\n"

"""Names of tensors in a file, made of where the tensors are in a state."""

from __future__ import annotations

from typing import Any

LONGEST_NAME = 200

Path = tuple[Any, Any] | None
"""The path of the container and the key in it; None for the state itself."""


def shown(path: Path) -> str:
    """Keys joined by dots, as in `optimizer.state.0.exp_avg`. Of a long path the end."""
    parts: list[str] = []
    length = 0
    while path is not None and length <= LONGEST_NAME:
        path, key = path
        text = key if isinstance(key, str) else repr(key)
        parts.append(text.encode("utf-8", "backslashreplace").decode()[: LONGEST_NAME + 1])
        length += len(parts[-1]) + 1
    text = ".".join(reversed(parts)) or "state"
    return text if path is None and len(text) <= LONGEST_NAME else "~" + text[-LONGEST_NAME:]


class Names:
    """Gives each tensor a name that no other one has."""

    def __init__(self) -> None:
        self._taken: dict[str, int] = {"__metadata__": 1}  # a name that SafeTensors keeps for itself

    def take(self, path: Path) -> str:
        wanted = name = shown(path)
        while name in self._taken:
            self._taken[wanted] += 1
            name = f"{wanted}~{self._taken[wanted]}"
        self._taken[name] = 1
        return name

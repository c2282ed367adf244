"""Peak memory of this process over what it held before."""

from __future__ import annotations

from pathlib import Path

_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"


def _status(field: str) -> int:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"{_STATUS} has no {field}")


def resident_bytes() -> int:
    return _status("VmRSS")


class PeakMemory:
    """Counts from construction. Mapped file pages that were touched count as well: they are this process's RSS."""

    def __init__(self) -> None:
        _CLEAR_REFS.write_text(_RESET_PEAK)
        self._before = resident_bytes()

    def extra_bytes(self) -> int:
        return max(0, _status("VmHWM") - self._before)

"""The system's Chromium."""

from __future__ import annotations

import shutil

MISSING = "Chromium is not installed; on Debian: apt install chromium"
# A container has no user namespaces for the browser's own sandbox. Pages of tests are our own.
ARGUMENTS = ["--no-sandbox"]


def find_chromium() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome")
    return next(filter(None, map(shutil.which, names)), None)

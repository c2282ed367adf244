"""A browser for the tests of pages: the system's Chromium, driven by playwright. Without one of them the tests are skipped,
or fail if WEIGHTSTORE_BROWSER is "required"."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from support.chromium import ARGUMENTS, MISSING, find_chromium


def _without(what: str) -> NoReturn:
    if os.environ.get("WEIGHTSTORE_BROWSER") == "required":
        pytest.fail(what)
    pytest.skip(what)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    chromium = find_chromium()
    if chromium is None:
        _without(MISSING)
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _without("playwright is not installed; `make test-browser` installs it")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        yield started
        started.close()


@pytest.fixture
def show(browser: Any) -> Iterator[Callable[..., Any]]:
    """Shows a page, and fails if it does anything that a page must not do: errors, dialogs, requests for other files."""
    wrong: list[str] = []
    contexts = []

    def open_page(path: Path, *, width: int = 1360, height: int = 860, dark: bool = False, phone: bool = False) -> Any:
        context = browser.new_context(
            viewport={"width": 390, "height": 844} if phone else {"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            device_scale_factor=2 if phone else 1,
            has_touch=phone,
            reduced_motion="reduce",
        )
        contexts.append(context)
        page = context.new_page()
        address = path.resolve().as_uri()
        page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
        page.on("console", lambda message: wrong.append(f"{message.type}: {message.text}"))
        page.on("dialog", lambda dialog: (wrong.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: request.url == address or wrong.append(f"request: {request.url}"))
        page.goto(address)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []

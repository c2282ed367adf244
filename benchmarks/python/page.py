"""The page of a file in headless Chromium: how long until it is seen, and how long a search and a sort take.

Beside the time on the clock stands the processor time of the page's main thread, which other programs on the machine hardly change.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

if __package__ in (None, ""):  # run as a file
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from tests.support.chromium import ARGUMENTS, MISSING, find_chromium
from tests.support.page_files import many_tensors

from weightstore._page.document import document

FIRST_PAINT_GOAL = 2000  # ms
ACTION_GOAL = 150  # ms
ROWS_GOAL = 300

# The time of the first frame that shows rows, since the navigation began.
_WATCH = """
(function watch() {
  if (document.querySelector('.row')) requestAnimationFrame(() => { window.seenAt = performance.now(); });
  else requestAnimationFrame(watch);
})();
"""
# From the event to the frame after the one in which the change is painted.
_TIMED = """() => new Promise((done) => {
  const start = performance.now();
  %s;
  requestAnimationFrame(() => setTimeout(() => done(performance.now() - start), 0));
})"""
_SEARCH = """
  const box = document.querySelector('input'); box.value = '%s'; box.dispatchEvent(new Event('input'));
"""
_CLICK = """document.querySelector("%s").click()"""

ACTIONS = {
    "expand all": _CLICK % "button[title='Open all modules']",
    "search, 250 found": _SEARCH % "experts.57.up",
    "search, all found": _SEARCH % "experts",
    "search, cleared": _SEARCH % "",
    "sort the tree by size": _CLICK % "[data-key=bytes] button",
    "sort the tree by type": _CLICK % "[data-key=dtype] button",
    "sort the tree by name": _CLICK % "[data-key=name] button",
    "list": _CLICK % "button[title^='Show a flat list']",
    "sort the list by size": _CLICK % "[data-key=bytes] button",
    "sort the list by type": _CLICK % "[data-key=dtype] button",
    "sort the list by name": _CLICK % "[data-key=name] button",
}


def measure(browser: Any, address: str) -> dict[str, tuple[float, float]]:
    """Milliseconds on the clock and of the main thread, by action; and the most rows there were."""
    context = browser.new_context(viewport={"width": 1360, "height": 860}, bypass_csp=True)
    page = context.new_page()
    session = context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def busy() -> float:
        metrics = session.send("Performance.getMetrics")["metrics"]
        return 1000 * next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration")

    page.add_init_script(_WATCH)
    page.goto(address)
    page.wait_for_function("window.seenAt")
    times = {"first paint": (page.evaluate("window.seenAt"), busy())}
    page.wait_for_timeout(1500)  # a reader looks first; what the first search needs is made meanwhile
    most = 0
    for name, act in ACTIONS.items():
        before = busy()
        times[name] = (page.evaluate(_TIMED % act), busy() - before)
        most = max(most, page.locator("[role=row]").count())
    times["rows"] = (most, most)
    context.close()
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tensors", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    chromium = find_chromium()
    if chromium is None:
        sys.exit(MISSING)
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
        path = Path(directory) / "page.html"
        path.write_text(document(many_tensors(arguments.tensors), "many"), encoding="utf-8")
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        print(f"{arguments.tensors} tensors, {path.stat().st_size / 1e6:.1f} MB of HTML, Chromium {browser.version}")
        rounds = [measure(browser, path.as_uri()) for _ in range(arguments.rounds)]
        browser.close()
    for name in rounds[0]:
        values = [times[name][0] for times in rounds]
        thread = median(times[name][1] for times in rounds)
        goal = {"first paint": FIRST_PAINT_GOAL, "rows": ROWS_GOAL}.get(name, ACTION_GOAL)
        word = "reached" if median(values) <= goal else "NOT REACHED"
        unit = "" if name == "rows" else " ms"
        print(
            f"{name:<24} median {median(values):6.0f}{unit}  worst {max(values):6.0f}{unit}  "
            f"main thread {thread:6.0f}{unit}  goal {goal}{unit}  {word}"
        )


if __name__ == "__main__":
    main()

"""Ctrl-C is answered wherever a pager makes Python wait."""

from __future__ import annotations

import subprocess
import sys

import pytest

# The interrupt comes once the main thread waits; without it, that would take ten minutes. What is waited for is another
# thread's doing, so that no Python code runs on the main thread meanwhile.
PREAMBLE = """
import os, signal, sys, threading
import weightstore

signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job would ignore it
signal.alarm(60)
data = bytes(1000)
entries = {str(i): (100 * i, 100) for i in range(10)}
reading = threading.Event()
never = threading.Event()

def stuck(offset, size):
    reading.set()
    never.wait(600)
    return data[offset : offset + size]

def soon():
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
"""

WAITS = {
    "for room": """
pager = weightstore.LayerPager(data, entries, 100, strict=True)
held = pager.acquire("0")
soon()
call = lambda: pager.acquire("1", timeout=600)
""",
    "for a tensor that another thread reads": """
pager = weightstore.LayerPager(stuck, entries)
threading.Thread(target=pager.acquire, args=("0",), daemon=True).start()
reading.wait()
soon()
call = lambda: pager.acquire("0")
""",
    "for several, one of which another thread reads": """
pager = weightstore.LayerPager(stuck, entries)
threading.Thread(target=pager.acquire, args=("0",), daemon=True).start()
reading.wait()
soon()
call = lambda: pager.acquire_many(["0"])
""",
    "for prefetches": """
pager = weightstore.LayerPager(stuck, entries)
soon()
call = lambda: pager.prefetch(["0", "1"], wait=True)
""",
    # Holes; the interrupt comes long before their end.
    "for a long read": """
size = 8 << 30
with open(sys.argv[1], "wb") as file:
    file.truncate(size)
pager = weightstore.LayerPager(sys.argv[1], {"all": (0, size)}, direct=False)
threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
call = lambda: pager.acquire("all")
""",
}

ENDING = """
try:
    call()
except KeyboardInterrupt:
    os._exit(0)
os._exit(4)
"""


@pytest.mark.parametrize("wait", WAITS)
def test_ctrl_c(wait, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", PREAMBLE + WAITS[wait] + ENDING, tmp_path / "raw"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr

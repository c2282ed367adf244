"""A pager in a process that forks: the child goes on, and neither side hangs."""

from __future__ import annotations

import os
import subprocess
import sys

from weightstore import LayerPager

DATA = bytes(range(256)) * 4
MAP = {"first": (0, 100), "second": (100, 200), "third": (5, 10)}


def succeeds_in_child(work) -> bool:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_child_goes_on(tmp_path):
    path = tmp_path / "raw"
    path.write_bytes(DATA)
    pager = LayerPager(path, MAP)
    pager.acquire("first")
    pager.prefetch(["second"], wait=True)

    def check():
        for name, (offset, size) in MAP.items():
            assert pager.acquire(name).bytes() == DATA[offset : offset + size]

    def in_child():
        assert pager.is_resident("first")
        check()
        pager.prefetch(["second", "third"], wait=True)
        pager.close()

    assert succeeds_in_child(in_child)
    check()


# Threads that use the pager with the GIL in hand, while others fork. In a process of its own: should it hang, an alarm
# ends it.
FORKS_AMONG_THREADS = """
import logging, os, signal, sys, threading
import weightstore

signal.alarm(60)
sys.setswitchinterval(1e-5)
data = bytes(4000)
entries = {str(i): (100 * i, 100) for i in range(40)}
pagers = [weightstore.LayerPager(lambda offset, size: data[offset : offset + size], entries, 1000) for _ in range(3)]
done = threading.Event()

def use():
    while not done.is_set():
        for pager in pagers:
            for slot in (0, 1, 2, 0, 1, 2, 20):
                pager.acquire(slot)
            pager.prefetch([30, 31])

def fork():
    for _ in range(20):
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            good = all(pager.acquire(slot).bytes() == data[:100] for pager in pagers for slot in range(40))
            os._exit(0 if good else 1)
        if os.waitpid(child, 0)[1] != 0:
            os._exit(2)

users = [threading.Thread(target=use) for _ in range(3)]
forkers = [threading.Thread(target=fork) for _ in range(2)]
for thread in users + forkers:
    thread.start()
for thread in forkers:
    thread.join()
done.set()
for thread in users:
    thread.join()
"""


def test_threads_at_work_while_others_fork():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FORKS_AMONG_THREADS], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

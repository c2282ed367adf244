"""Programs whose own atexit hooks run after weightstore's: Python calls hooks in reverse order."""

from __future__ import annotations

import subprocess
import sys
import textwrap


def run(program: str, folder) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], cwd=folder, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_a_hook_waits_for_a_daemon_thread_that_saves(tmp_path):
    program = """
        import atexit, queue, threading, time
        jobs = queue.Queue()
        def worker():
            while (job := jobs.get()) is not None:
                job()
        thread = threading.Thread(target=worker, daemon=True)
        thread.start()
        atexit.register(lambda: (jobs.put(None), thread.join(), print("flushed")))
        import numpy as np
        import weightstore.numpy
        def save():
            time.sleep(0.3)
            weightstore.numpy.save_file({"a": np.zeros(10)}, "a.safetensors")
            print("saved")
        jobs.put(save)
    """
    assert run(program, tmp_path) == "saved\nflushed\n"


def test_a_hook_reads_a_file_object(tmp_path):
    program = """
        import atexit, io
        class Stream(io.BytesIO):
            pass
        def last():
            with weightstore.open(Stream(data)) as file:
                print(sum(int(file[name].numpy()[0]) for name in file))
        atexit.register(last)
        import numpy as np
        import weightstore
        import weightstore.numpy
        data = weightstore.numpy.save({f"a{i}": np.full(3_000_000, i, "i4") for i in range(4)})
    """
    assert run(program, tmp_path) == "6\n"


def test_a_daemon_thread_in_a_callback_that_does_not_return(tmp_path):
    program = """
        import threading
        from weightstore import _core
        inside = threading.Event()
        def produce():
            inside.set()
            threading.Event().wait()
        threading.Thread(target=_core.Producer.deferred(8, produce).read, daemon=True).start()
        inside.wait()
        print("ends")
    """
    assert run(program, tmp_path) == "ends\n"

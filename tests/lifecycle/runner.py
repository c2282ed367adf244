"""Runs one case after the other, each in a process of its own that has everything imported already.

Reads lines of JSON: [situation, specimen, directory]. Answers each with {"code": ..., "stderr": ...}. The argument is
"torch" or "plain": without torch, a process forks and exits much more quickly.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import sys
import tempfile
from pathlib import Path


def main() -> None:
    importlib.import_module("weightstore.numpy")
    importlib.import_module("weightstore.stores")
    importlib.import_module("weightstore._pager")
    if sys.argv[1] == "torch":
        # OpenMP's threads, which torch has for large tensors, do not survive a fork.
        importlib.import_module("torch").set_num_threads(1)
        importlib.import_module("weightstore._torch_library.loading").load()
    from lifecycle.situations import SITUATIONS
    from lifecycle.specimens import SPECIMENS

    gc.freeze()  # what the modules hold is not looked at in every case
    for line in sys.stdin:
        situation, specimen, directory = json.loads(line)
        with tempfile.TemporaryFile() as stderr:
            child = os.fork()
            if child == 0:
                os.dup2(stderr.fileno(), 2)
                signal.alarm(40)
                SITUATIONS[situation](SPECIMENS[specimen], Path(directory))
                return  # from here on as any program ends
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            stderr.seek(0)
            print(json.dumps({"code": code, "stderr": stderr.read().decode(errors="replace")}), flush=True)


if __name__ == "__main__":
    main()

"""Instructions per tensor, as callgrind counts them: unlike times, they do not depend on what else the machine does.

What a call costs by itself is not part of it: each task runs with two numbers of tensors, and the difference counts. The second
column is for tensors that cross into the core one by one, as those of a torch before 2.10 do. Needs valgrind. With the argument
`sample` this file is the process that is counted.
"""

from __future__ import annotations

import ctypes
import gc
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

if __package__ in (None, ""):  # run as a file
    sys.path[0] = str(Path(__file__).resolve().parents[2])

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path(__file__).with_name("callgrind.cc")
FEW, MANY = 540, 1620  # 60 and 180 blocks of a module
WAYS = ("together", "one by one")
TASKS = ("save_file", "load_file", "save_into", "load_from", "save", "load")


def _works(task: str, count: int, directory: Path) -> Callable[[], object]:
    from benchmarks.python.small_tasks import blocks, many_tensors

    import weightstore
    import weightstore.torch as wt

    path = directory / f"{task}-{count}.safetensors"
    tensors, module = many_tensors(count), blocks(count=count // 9)
    store = weightstore.SafetensorsStore.from_file(path).durable(False).overwrite(True)
    if task in ("save_into", "load_from"):
        store.collect_from(module)
    else:
        wt.save_file(tensors, path, durable=False)
    data = path.read_bytes()
    works: dict[str, Callable[[], object]] = {
        "save_file": lambda: wt.save_file(tensors, path, durable=False),
        "load_file": lambda: wt.load_file(path),
        "save_into": lambda: weightstore.save_into(module, store),
        "load_from": lambda: weightstore.load_from(module, path),
        "save": lambda: wt.save(tensors),
        "load": lambda: wt.load(data),
    }
    return works[task]


def sample(library: Path, directory: Path) -> None:
    from weightstore._tensors import batches

    counter = ctypes.CDLL(str(library))
    for task in TASKS:
        for count in (FEW, MANY):
            work = _works(task, count, directory)
            for way in WAYS:
                batches.leaves_all_to_python = way == "one by one"
                work()
                gc.collect()
                gc.disable()
                counter.count_start()
                result = work()
                counter.count_stop(_label(task, way, count).encode())
                gc.enable()
                del result


def _label(task: str, way: str, count: int) -> str:
    return f"{task}, {way}, {count}"


def _counted(files: list[Path]) -> dict[str, int]:
    """Label to instructions, on all threads."""
    found: dict[str, int] = {}
    for file in files:
        text = file.read_text(errors="replace")
        label = re.search(r"^desc: Trigger: Client Request: (.+)$", text, re.MULTILINE)
        totals = re.search(r"^(?:totals|summary): (\d+)", text, re.MULTILINE)
        if label and totals:
            found[label[1]] = found.get(label[1], 0) + int(totals[1])
    return found


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="weightstore-bench-") as name:
        directory = Path(name)
        library = directory / "libcallgrind.so"
        compiler = os.environ.get("CXX", "g++")
        subprocess.run([compiler, "-O2", "-shared", "-fPIC", str(SOURCE), "-o", str(library)], check=True)
        command = [
            "valgrind",
            "--tool=callgrind",
            "--instr-atstart=no",
            f"--callgrind-out-file={directory}/out",
            "--quiet",
        ]
        arguments = [sys.executable, __file__, "sample", str(library), str(directory)]
        subprocess.run([*command, *arguments], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        counted = _counted(sorted(directory.glob("out*")))
    print("instructions per tensor")
    print("".join(f"{title:>14}" for title in ("", *WAYS)))
    for task in TASKS:
        few, many = ([counted[_label(task, way, count)] for way in WAYS] for count in (FEW, MANY))
        each = [(more - less) / (MANY - FEW) for less, more in zip(few, many, strict=True)]
        print(f"{task:>14}" + "".join(f"{number:14,.0f}" for number in each))
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["sample"]:
        sample(Path(sys.argv[2]), Path(sys.argv[3]))
    else:
        raise SystemExit(main())

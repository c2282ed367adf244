"""fresh_install.py DIRECTORY: follows the first commands of README.md in a new environment, and checks what they installed.

`make fresh-install` calls it. It downloads torch and builds the package, so it takes minutes and is no part of the tests.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]

CHECK = """
import os, tempfile
import torch
import weightstore, weightstore.torch

assert os.path.realpath(weightstore.__file__).startswith(os.path.realpath(os.environ["VIRTUAL_ENV"])), weightstore.__file__
directory = os.path.join(tempfile.mkdtemp(), "checkpoint")
tensors = {"weight": torch.arange(12.0).reshape(3, 4), "bias": torch.ones(3)}
table = torch.classes.store.HashTable("user", [4], torch.float32)
rows = torch.rand(5, 4)
table.insert(torch.arange(5), rows)

saver = torch.classes.store.Saver(0, 1, 2, directory)
saver.save(saver.make_write_blocks({"user": table}, tensors))

loaded = {name: torch.zeros_like(tensor) for name, tensor in tensors.items()}
again = torch.classes.store.HashTable("user", [4], torch.float32)
loader = torch.classes.store.Loader(directory, 2, {"user": again}, loaded)
loader.load(loader.default_load_info())
assert all(torch.equal(loaded[name], tensor) for name, tensor in tensors.items())
assert torch.equal(again.lookup(torch.arange(5), False)[1], rows)
print("torch", torch.__version__, "weightstore", weightstore.__version__, "saved and loaded", sorted(os.listdir(directory)))
"""


def commands() -> list[str]:
    """The commands of the first block of the shell in README.md."""
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    block = re.search(r"```sh\n(.*?)```", text, re.DOTALL)
    assert block is not None, "README.md has no commands"
    lines = [line for line in block[1].splitlines() if line.strip()]
    assert all(line.startswith("pip install ") for line in lines), lines
    return lines


def main() -> None:
    environment = Path(sys.argv[1]).resolve() / "venv"
    shutil.rmtree(environment, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    variables = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    variables |= {"VIRTUAL_ENV": str(environment), "PATH": f"{environment / 'bin'}:{variables['PATH']}"}
    for command in commands():
        print("+", command, flush=True)
        subprocess.run(["sh", "-c", command], check=True, cwd=REPOSITORY, env=variables)
    subprocess.run([environment / "bin/python", "-c", CHECK], check=True, cwd=environment, env=variables)


if __name__ == "__main__":
    main()

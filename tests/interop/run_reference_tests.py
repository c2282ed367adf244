"""Runs the Python tests of the safetensors package, release 0.8.0, on this library.

Twice: once with the package's own `safetensors.torch` and `safetensors.numpy` over `weightstore.compat` in the place of its
native module ("core"), once with `weightstore.torch` and `weightstore.numpy` in the place of those two as well ("verbs").
Tests that fail by design are listed below with the reason, and must fail; everything else must pass.

    python tests/interop/run_reference_tests.py [path of the source distribution, a .tar.gz]

Without a path the source distribution is fetched with pip.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

RELEASE = "0.8.0"
FILES = [
    "test_simple.py",
    "test_handle.py",
    "test_pread_backend.py",
    "test_pt_comparison.py",
    "test_pt_model.py",
    "test_threadable.py",
    "test_multithreaded.py",
]

BY_DESIGN: dict[str, dict[str, str]] = {
    "core": {},
    "verbs": {
        "SliceTestCase.test_cannot_serialize_a_non_contiguous_tensor": "we save such tensors by value",
        "TorchModelTestCase.test_workaround_non_contiguous": "we save such models by value, with either option",
        "TorchModelTestCase.test_remove_duplicate_names": "we save a lone view of larger memory: only its part is written",
        "TorchModelTestCase.test_find_shared_tensors": "a helper of theirs: it lists lone views too, ours only aliases",
    },
}

# The package builds with maturin; for its file list alone a name and a version are enough.
BUILD_STUB = f"""
import os
def prepare_metadata_for_build_wheel(directory, config_settings=None):
    made = os.path.join(directory, "safetensors-{RELEASE}.dist-info")
    os.makedirs(made)
    with open(os.path.join(made, "METADATA"), "w") as file:
        file.write("Metadata-Version: 2.1\\nName: safetensors\\nVersion: {RELEASE}\\n")
    return os.path.basename(made)
def build_wheel(*args, **kwargs):
    raise SystemExit("only the list of files is wanted; nothing is built")
"""

COMPAT = """
from weightstore.compat import *
from weightstore.compat import __version__, _safe_open_handle
"""
TORCH = """
from weightstore.torch import *
from weightstore._tensors import aliases

def storage_ptr(tensor):
    return tensor.untyped_storage().data_ptr()

def storage_size(tensor):
    return tensor.untyped_storage().nbytes()

def _end_ptr(tensor):
    return aliases.memory_range(tensor)[1]

_is_complete = aliases._is_complete

def _find_shared_tensors(tensors):
    groups = aliases.shared_groups(tensors)
    return groups + [{name} for name in tensors if not any(name in group for group in groups)]

def _remove_duplicate_names(tensors, *, preferred_names=None, discard_names=None):
    return aliases.names_to_drop(tensors, preferred_names or ())
"""
NUMPY = "from weightstore.numpy import *\n"


def fetch(directory: Path) -> Path:
    """Downloads the source distribution without building it."""
    stub = directory / "stub"
    stub.mkdir()
    (stub / "maturin.py").write_text(BUILD_STUB)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-build-isolation"]
    command += ["--no-binary", "safetensors", "--dest", str(directory), f"safetensors=={RELEASE}"]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(stub)})
    return directory / f"safetensors-{RELEASE}.tar.gz"


def make_package(site: Path, source: Path, mode: str) -> None:
    package = site / "safetensors"
    if mode == "core":
        shutil.copytree(source / "py_src" / "safetensors", package)
        (package / "_safetensors_rust.py").write_text(COMPAT)
        return
    package.mkdir(parents=True)
    for name, text in (("__init__", COMPAT), ("torch", TORCH), ("numpy", NUMPY)):
        (package / f"{name}.py").write_text(text)


def run(directory: Path, source: Path, mode: str) -> bool:
    work = directory / mode
    make_package(work / "site", source, mode)
    shutil.copytree(source / "bindings" / "python" / "tests", work / "tests")
    (work / "tests" / "data").mkdir(exist_ok=True)
    report = work / "report.xml"
    path = os.pathsep.join(filter(None, [str(work / "site"), os.environ.get("PYTHONPATH", "")]))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(work)]
    command += [f"--junitxml={report}", *(f"tests/{name}" for name in FILES)]
    output = subprocess.run(
        command,
        cwd=work,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ).stdout
    if not report.exists():
        print(output)
        return False

    passed, skipped, failed = set(), set(), set()
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        name = f"{case.get('classname', '').rpartition('.')[2]}.{case.get('name')}"
        if case.find("failure") is not None or case.find("error") is not None:
            failed.add(name)
        elif case.find("skipped") is not None:
            skipped.add(name)
        else:
            passed.add(name)
    by_design = BY_DESIGN[mode]
    wrong = failed - by_design.keys()
    unexpected = by_design.keys() - failed
    print(f"{mode}: {len(passed)} passed, {len(skipped)} skipped, {len(failed)} failed")
    for name in sorted(failed & by_design.keys()):
        print(f"  by design: {name}: {by_design[name]}")
    for name in sorted(unexpected):
        print(f"  listed as failing by design, but passes: {name}")
    if wrong:
        print(output)
        print("\n".join(f"  FAILED {name}" for name in sorted(wrong)))
    return bool(passed) and not wrong and not unexpected


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="weightstore-interop-") as temporary:
        directory = Path(temporary)
        archive = Path(sys.argv[1]) if len(sys.argv) > 1 else fetch(directory)
        with tarfile.open(archive) as tar:
            tar.extractall(directory / "source", filter="data")
        source = directory / "source" / f"safetensors-{RELEASE}"
        results = [run(directory, source, mode) for mode in BY_DESIGN]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())

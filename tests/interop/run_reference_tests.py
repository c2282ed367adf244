"""Runs the Python tests of the safetensors package, release 0.8.0, on this library.

Three times: with the package itself ("stock"); with its own `safetensors.torch` and `safetensors.numpy` over
`weightstore.compat` in the place of its native module ("core"); and with `weightstore.torch` and `weightstore.numpy` in the
place of those two as well ("verbs"). Tests that fail by design are listed below with the reason, and must fail; everything
else must pass, and "stock" must skip the same tests.

    python tests/interop/run_reference_tests.py [path of the source distribution, a .tar.gz]

Without a path the source distribution is fetched with pip. A path that does not exist yet is where it is kept.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from pytest_counts import SHIM, Counts, run_pytest

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
    "stock": {},
    "core": {},
    "verbs": {
        "test_pt_comparison.TorchTestCase.test_sparse": "a ValueError too; its text names the layout of the tensor",
        "test_pt_comparison.SliceTestCase.test_cannot_serialize_a_non_contiguous_tensor": "we save such tensors by value",
        "test_pt_model.TorchModelTestCase.test_remove_duplicate_names": (
            "we save a lone view of larger memory: only its part is written"
        ),
        "test_pt_model.TorchModelTestCase.test_find_shared_tensors": (
            "a helper of theirs: it lists lone views too, ours only aliases"
        ),
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


def fetch(directory: Path) -> Path:
    """Downloads the source distribution without building it."""
    stub = directory / "stub"
    stub.mkdir()
    (stub / "maturin.py").write_text(BUILD_STUB)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-build-isolation"]
    command += ["--no-binary", "safetensors", "--dest", str(directory), f"safetensors=={RELEASE}"]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(stub)})
    return directory / f"safetensors-{RELEASE}.tar.gz"


def site_of(work: Path, source: Path, mode: str) -> list[Path]:
    """The directories with the package `safetensors` of a mode; none for the installed one."""
    if mode == "stock":
        return []
    if mode == "verbs":
        return [SHIM]
    package = work / "site" / "safetensors"
    shutil.copytree(source / "py_src" / "safetensors", package)
    shutil.copyfile(SHIM / "safetensors" / "__init__.py", package / "_safetensors_rust.py")
    return [work / "site"]


def run(directory: Path, source: Path, mode: str) -> tuple[Counts, bool]:
    work = directory / mode
    shutil.copytree(source / "bindings" / "python" / "tests", work / "tests")
    (work / "tests" / "data").mkdir(exist_ok=True)
    files = [f"tests/{name}" for name in FILES]
    counts, output = run_pytest(["--rootdir", str(work), *files], work=work, path=site_of(work, source, mode))
    by_design = BY_DESIGN[mode]
    wrong, unexpected = counts.failed - by_design.keys(), by_design.keys() - counts.failed
    print(f"safetensors {RELEASE}, its own tests, {mode}: {counts}", flush=True)
    for name in sorted(counts.failed & by_design.keys()):
        print(f"  by design: {name}: {by_design[name]}")
    for name in sorted(unexpected):
        print(f"  listed as failing by design, but passes: {name}")
    if wrong:
        print(output)
        print("\n".join(f"  FAILED {name}" for name in sorted(wrong)))
    return counts, bool(counts.passed) and not wrong and not unexpected


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="weightstore-interop-") as temporary:
        directory = Path(temporary)
        archive = Path(sys.argv[1]) if len(sys.argv) > 1 else None
        if archive is None or not archive.exists():
            fetched = fetch(directory)
            archive = fetched if archive is None else Path(shutil.copyfile(fetched, archive))
        with tarfile.open(archive) as tar:
            tar.extractall(directory / "source", filter="data")
        source = directory / "source" / f"safetensors-{RELEASE}"
        results = {mode: run(directory, source, mode) for mode in BY_DESIGN}
    skipped = {counts.skipped for counts, _ in results.values()}
    if len(skipped) > 1:
        print("  the modes skip different tests")
    return 0 if len(skipped) == 1 and all(good for _, good in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())

"""Runs other people's programs on this library: transformers, accelerate, peft, huggingface_hub, torch.distributed.checkpoint,
and the frameworks that safe_open makes tensors for.

Each test in tests/interop/clients runs twice: with the package safetensors ("stock"), and with weightstore in its place
("ours"). Both must pass everything, and skip the same tests but for those named below.

    python tests/interop/run_clients.py <directory with the environments>
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from pytest_counts import SHIM, Counts, run_pytest

CLIENTS = Path(__file__).parent / "clients"
MODEL_LIBRARIES = [
    ["transformers_models.py"],
    ["accelerate_checkpoints.py"],
    ["peft_adapters.py"],
    ["hub_serialization.py"],
    ["gguf_models.py"],
    ["torch_dcp.py"],
    ["offloaded_models.py"],
]
# Arguments of pytest, by the environment. Each framework has a process: they do not all agree with each other in one.
ENVIRONMENTS = {
    "transformers5": MODEL_LIBRARIES,
    "transformers4": MODEL_LIBRARIES,
    "frameworks": [["framework_tensors.py", "-k", name] for name in ("jax", "tensorflow", "mlx", "paddle")],
}


def run(python: Path, client: list[str], mode: str) -> tuple[Counts, str]:
    with tempfile.TemporaryDirectory(prefix="weightstore-interop-") as work:
        return run_pytest(
            [
                f"--rootdir={CLIENTS}",
                f"-c{CLIENTS / 'pytest.ini'}",
                f"--basetemp={work}/tmp",
                str(CLIENTS / client[0]),
                *client[1:],
            ],
            work=Path(work),
            path=[SHIM] if mode == "ours" else [],
            python=python,
            WEIGHTSTORE_INTEROP=mode,
        )


def main() -> int:
    environments = Path(sys.argv[1]).absolute()
    rows, good = [("environment", "client", "stock", "ours")], True
    for environment, clients in ENVIRONMENTS.items():
        for client in clients:
            found, title = {}, " ".join(client)
            for mode in ("stock", "ours"):
                counts, output = run(environments / environment / "bin" / "python", client, mode)
                found[mode] = counts
                print(f"{environment}, {title}, {mode}: {counts}", flush=True)
                if counts.failed or not counts.passed:
                    print(output)
            # Where the package skips something that we can do, there is a reason in the test.
            only_ours = found["ours"].skipped - found["stock"].skipped
            if only_ours:
                print(f"  only ours skips: {', '.join(sorted(only_ours))}")
            good = good and not only_ours and all(counts.passed and not counts.failed for counts in found.values())
            rows.append((environment, title, str(found["stock"]), str(found["ours"])))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    print("\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

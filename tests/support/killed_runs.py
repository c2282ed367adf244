"""Kills a training loop at random moments, starts it again, and looks at what it left.

python tests/support/killed_runs.py KILLS [SEED]
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

from weightstore import CheckpointManager

# Forks for each run, so that torch is imported once: most kills then hit a save or a restore. Says what has been returned for.
SERVER = """
import os, random, sys, torch, weightstore, warnings
warnings.simplefilter("ignore")
directory, is_async = sys.argv[1], sys.argv[2] == "async"
torch.set_num_threads(1)
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        model = torch.nn.Linear(300, 300)
        optimizer = torch.optim.AdamW(model.parameters())
        state = {"model": model, "optimizer": optimizer, "rng": True}
        manager = weightstore.CheckpointManager(directory, max_to_keep=2, keep_every=7, best="loss", async_save=is_async)
        found = manager.restore(state)
        step = found.step if found else 0
        if found:
            assert model.bias.eq(step).all() and found["step"] == step, (step, model.bias[0])
        os.write(1, b"restored %d\\n" % step)
        while True:
            step += 1
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.fill_(step)
                    parameter.grad = torch.zeros_like(parameter)
            optimizer.step()
            with torch.no_grad():
                model.bias.fill_(step)
            manager.save(step, {**state, "step": step}, {"loss": abs(step % 11 - 5)})
            if not is_async:
                os.write(1, b"saved %d\\n" % step)
            elif step % 3 == 0:
                manager.wait()
                os.write(1, b"saved %d\\n" % step)
    os.write(1, b"pid %d\\n" % child)
    status = os.waitpid(child, 0)[1]
    os.write(1, b"ended %d\\n" % os.waitstatus_to_exitcode(status))
"""


@dataclass
class Outcome:
    kills: int = 0
    restores: int = 0
    newest: int = 0


def soak(kills: int, seed: int, way: str) -> Outcome:
    """Raises AssertionError if a restore was not complete, or older than the last save that has returned."""
    import os
    import signal

    chance, outcome, known = random.Random(seed), Outcome(), 0
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-c", SERVER, directory, way]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as server:
            assert server.stdin is not None
            assert server.stdout is not None
            for _ in range(kills):
                server.stdin.write("\n")
                server.stdin.flush()
                lines = [server.stdout.readline() for _ in range(2)]
                pid = next(int(line.split()[1]) for line in lines if line.startswith("pid"))
                time.sleep(chance.uniform(0, 0.25))
                os.kill(pid, signal.SIGKILL)
                while not lines[-1].startswith("ended"):
                    lines.append(server.stdout.readline())
                    assert lines[-1], "the server has ended"
                assert lines[-1] == "ended -9\n", lines
                for line in lines:
                    word, number = line.split()
                    if word == "restored":
                        assert int(number) >= known, f"restored step {number}, and step {known} was saved"
                        outcome.restores += 1
                    if word in ("restored", "saved"):
                        known = max(known, int(number))
                outcome.kills += 1
                check(directory, known)
            server.stdin.close()
        outcome.newest = known
    return outcome


def check(directory: str, known: int) -> None:
    """Every step that is there is complete, the newest one is not older than `known`, and so much stays."""
    manager = CheckpointManager(directory)
    steps = manager.steps()
    if not steps:
        assert known == 0
        return
    found = manager.restore(verify="full")
    assert found is not None
    assert found.step >= known, (found.step, known)
    assert found["model"]["bias"].eq(found.step).all()
    assert found["step"] == found.step
    others = [step for step in steps[:-3] if step % 7 != 0]
    assert len(others) <= 2, steps  # the best one, and one that a killed save has not removed yet


if __name__ == "__main__":
    number, first = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    for mode in ("sync", "async"):
        done = soak(number // 2, first, mode)
        print(
            f"{mode}: {done.kills} kills, {done.restores} restores, all complete; newest step {done.newest}", flush=True
        )

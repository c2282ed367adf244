"""Ranks of torch.distributed for tests: processes over gloo that run functions of a test file.

A server process imports torch once and forks the ranks, so that starting them takes a fraction of a second. Tests of faults start
ranks of their own and kill them; all others share the four ranks of `pool()`.
"""

from __future__ import annotations

import atexit
import functools
import importlib.util
import multiprocessing
import os
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Sequence
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

_TIMEOUT = 60.0


class RankError(Exception):
    """What a rank raised, with its traceback."""


def _load(path: str) -> Any:
    """The module of a test file. Test files are not on the path."""
    name = "rank_" + Path(path).stem
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


def _serve(rank: int, world: int, meeting: str, timeout: float, paths: Sequence[str], connection: Connection) -> None:
    sys.path[:0] = [path for path in paths if path not in sys.path]
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    warnings.simplefilter("ignore")
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    store = dist.FileStore(meeting, world)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=timedelta(seconds=timeout))
    while True:
        try:
            task = connection.recv()
        except EOFError:
            return
        if task is None:
            return
        path, name, arguments = task
        try:
            answer = (True, getattr(_load(path), name)(*arguments))
        except BaseException as error:
            answer = (False, (error_text(error), traceback.format_exc()))
        connection.send(answer)


def error_text(error: BaseException) -> str:
    """The text of an error and of those inside: torch's CheckpointException has the errors of all ranks."""
    inner = getattr(error, "failures", None)
    texts = [f"{type(error).__name__}: {error}"]
    if isinstance(inner, dict):
        texts += [f"rank {rank}: {type(each[0]).__name__}: {each[0]}" for rank, each in inner.items()]
    return "\n".join(texts)


class Ranks:
    """Processes 0 to `world` - 1 of one process group."""

    def __init__(self, world: int, timeout: float = _TIMEOUT) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(
            ["torch", "torch.distributed.checkpoint", "torch.distributed.tensor", "weightstore.dcp"]
        )
        self._folder = tempfile.TemporaryDirectory(prefix="ranks-")
        self.processes = []
        self._connections = []
        for rank in range(world):
            here, there = context.Pipe()
            arguments = (rank, world, os.path.join(self._folder.name, "meeting"), timeout, list(sys.path), there)
            process = context.Process(target=_serve, args=arguments, daemon=True)
            process.start()
            there.close()
            self.processes.append(process)
            self._connections.append(here)

    def start(self, function: Callable[..., Any], *arguments: Any, ranks: Sequence[int] | None = None) -> None:
        """Calls a function of a test file on the ranks, as function(*arguments)."""
        path = function.__globals__["__file__"]
        for rank in range(len(self.processes)) if ranks is None else ranks:
            self._connections[rank].send((path, function.__name__, arguments))

    def result(self, rank: int, timeout: float = _TIMEOUT) -> Any:
        """What the function returned. Raises RankError with what it raised, and EOFError if the process has ended."""
        if not self._connections[rank].poll(timeout):
            raise TimeoutError(f"rank {rank} has not answered for {timeout} seconds")
        fine, value = self._connections[rank].recv()
        if not fine:
            raise RankError(f"rank {rank}: {value[0]}\n{value[1]}")
        return value

    def run(self, function: Callable[..., Any], *arguments: Any, ranks: Sequence[int] | None = None) -> list[Any]:
        """Calls the function and waits for all ranks. Raises what the first rank that failed has raised."""
        self.start(function, *arguments, ranks=ranks)
        results: list[Any] = []
        for rank in range(len(self.processes)) if ranks is None else ranks:
            try:
                results.append(self.result(rank))
            except RankError as error:
                results.append(error)
        for result in results:
            if isinstance(result, RankError):
                raise result
        return results

    def close(self) -> None:
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.join()
        self._folder.cleanup()


@functools.cache
def pool() -> Ranks:
    """The four ranks that tests share."""
    ranks = Ranks(4)
    atexit.register(ranks.close)
    return ranks

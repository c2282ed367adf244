"""Run:ai Model Streamer, with its default of 16 reading threads and with 2."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.python.contestants.base import Loads, LoadsInto

if TYPE_CHECKING:
    import torch


class RunaiStreamer(Loads, LoadsInto):
    modules = ("runai_model_streamer",)

    def __init__(self, threads: int) -> None:
        self.name = f"runai-streamer {threads}T"
        self.threads = threads

    def start(self) -> None:
        os.environ["RUNAI_STREAMER_CONCURRENCY"] = str(self.threads)
        os.environ["RUNAI_STREAMER_LOG_LEVEL"] = "ERROR"
        super().start()

    def load(self, path: Path, expected: list[str]) -> dict[str, torch.Tensor]:
        from runai_model_streamer import SafetensorsStreamer

        with SafetensorsStreamer() as streamer:
            streamer.stream_file(str(path))
            return dict(streamer.get_tensors())

    def load_into(self, path: Path, tensors: dict[str, torch.Tensor]) -> None:
        from runai_model_streamer import SafetensorsStreamer

        with SafetensorsStreamer() as streamer:
            streamer.stream_file(str(path), owned=False)
            for name, loaded in streamer.get_tensors():
                tensors[name].copy_(loaded)


CONTESTANTS = [RunaiStreamer(16), RunaiStreamer(2)]

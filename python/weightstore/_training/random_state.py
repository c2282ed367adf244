"""The states of the random generators of a process: of python, numpy and torch."""

from __future__ import annotations

import random
import sys
from typing import Any


class RandomState:
    """What `"rng": True` means in a state: the global generators of python, of numpy and torch if they are imported, and of the
    GPUs that torch uses."""

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = {"python": random.getstate()}
        numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
        if numpy is not None:
            state["numpy"] = numpy.random.get_state(legacy=False)
        if torch is not None:
            state["torch"] = torch.get_rng_state()
            if torch.cuda.is_initialized():
                state["cuda"] = torch.cuda.get_rng_state_all()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Generators of libraries that are not imported, or of GPUs that are not there, are left alone."""
        random.setstate(state["python"])
        numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
        if "numpy" in state and numpy is not None:
            numpy.random.set_state(state["numpy"])
        if "torch" in state and torch is not None:
            torch.set_rng_state(state["torch"])
            if "cuda" in state and torch.cuda.is_available():
                for device, each in enumerate(state["cuda"][: torch.cuda.device_count()]):
                    torch.cuda.set_rng_state(each, device)

"""Models as nn.Module, and the devices that they are on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.python.contestants.base import LoadsInto
from benchmarks.python.model import TORCH_DTYPES, Shapes

if TYPE_CHECKING:
    import torch

_BUFFERS = ("running_mean", "running_var", "num_batches_tracked")


def module_of(tensors: dict[str, torch.Tensor]) -> torch.nn.Module:
    """A tree of modules whose state dict is `tensors`, with the same memory."""
    import torch

    root = torch.nn.Module()
    for name, tensor in tensors.items():
        *path, last = name.split(".")
        owner = root
        for part in path:
            if part not in owner._modules:
                owner.add_module(part, torch.nn.Module())
            owner = owner._modules[part]
        if last in _BUFFERS:
            owner.register_buffer(last, tensor)
        else:
            owner.register_parameter(last, torch.nn.Parameter(tensor, requires_grad=False))
    return root


def meta_module(wanted: Shapes) -> torch.nn.Module:
    """The module without memory."""
    import torch

    return module_of(
        {
            name: torch.empty(shape, dtype=getattr(torch, TORCH_DTYPES[dtype]), device="meta")
            for name, (dtype, shape) in wanted.items()
        }
    )


def state_of(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.detach() for name, tensor in module.state_dict(keep_vars=True).items()}


class FillsModule(LoadsInto):
    """Fills the parameters of a module, on a device of its own."""

    device = "cpu"

    def start(self) -> None:
        import torch

        super().start()
        if self.device == "cuda" and not torch.cuda.is_available():
            raise RuntimeError("this machine has no CUDA device")

    def accept(self, tensors: dict[str, torch.Tensor]) -> torch.nn.Module:
        return module_of(tensors).to(self.device)

    def filled(self, accepted: torch.nn.Module, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return state_of(accepted.to("cpu"))

    def wait(self) -> None:
        """Until all is there; part of what is timed."""
        if self.device == "cuda":
            import torch

            torch.cuda.synchronize()

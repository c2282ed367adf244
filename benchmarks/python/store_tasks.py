"""The stores against what users write without them: saving and loading modules and arrays, and files of torch.save."""

from __future__ import annotations

from benchmarks.python.goals import FasterThan, MemoryBelowOneTensor
from benchmarks.python.model import RESNET18, SQUARES, Model, many
from benchmarks.python.task import Operation, Task

_SAVING = ("SafetensorsStore", "BurnpackStore")
_STORES = (*_SAVING, "PytorchStore")
_SAFETENSORS = "load_state_dict(safetensors.torch)"
_PEERS = (_SAFETENSORS, "load_state_dict(torch.load)", "load_state_dict(torch.load mmap)")

# "As fast as" allows for the noise of two samples of the same thing.
_AS_FAST = 0.95


def _named(names: tuple[str, ...], option: str) -> tuple[str, ...]:
    return tuple(f"{name} {option}" for name in names)


def _model_tasks(model: Model, title: str) -> tuple[Task, ...]:
    """One model through every store and its peers, from and to modules and arrays."""
    return (
        Task(
            f"{model.name}-save",
            f"{title}: save a module, or arrays, into the page cache",
            Operation.SAVE,
            (
                *_SAVING,
                *_named(_SAVING, "numpy"),
                *_PEERS[:2],
                "safetensors.numpy",
                "torch.save/load numpy",
            ),
            model=model,
        ),
        Task(
            f"{model.name}-load",
            f"{title}: load into a module",
            Operation.LOAD_INTO,
            (*_STORES, *_named(_STORES, "zero_copy"), *_PEERS),
            model=model,
        ),
        Task(
            f"{model.name}-numpy",
            f"{title}: load into arrays, every page touched",
            Operation.LOAD,
            (*_named(_STORES, "numpy"), "safetensors.numpy", "torch.save/load numpy"),
            model=model,
        ),
        Task(
            f"{model.name}-cuda",
            f"{title}: load into a module on a CUDA device",
            Operation.LOAD_INTO,
            (*_named(_STORES, "cuda"), *_named(_PEERS, "cuda")),
            model=model,
        ),
    )


STORE_TASKS = (
    *_model_tasks(SQUARES, "20 x 2048 x 2048"),
    *_model_tasks(RESNET18, "ResNet-18"),
    Task(
        "module",
        "load the model into a module that exists",
        Operation.LOAD_INTO,
        (*_STORES, "SafetensorsStore zero_copy", *_PEERS),
        {
            "SafetensorsStore": (FasterThan(_SAFETENSORS, 1), MemoryBelowOneTensor()),
            "SafetensorsStore zero_copy": (FasterThan(_SAFETENSORS, 5),),
            "PytorchStore": (FasterThan("SafetensorsStore", _AS_FAST),),
        },
    ),
    Task(
        "module-meta",
        "load the model into a module on the meta device, every page touched",
        Operation.LOAD,
        (*_named(_STORES, "meta"), "weightstore copying"),
        {"SafetensorsStore meta": (FasterThan("weightstore copying", _AS_FAST),)},
    ),
    Task(
        "pt-load",
        "load a .pt file into memory of its own, every page touched",
        Operation.LOAD,
        ("weightstore .pt copying", "weightstore copying", "torch.save/load"),
        {"weightstore .pt copying": (FasterThan("weightstore copying", _AS_FAST),)},
    ),
    Task(
        "pt-list",
        "open a .pt file and list the names of 10,000 tensors",
        Operation.LIST,
        ("weightstore .pt", "PytorchStore numpy", "torch.load mmap"),
        {
            "weightstore .pt": (FasterThan("torch.load mmap", 5),),
            "PytorchStore numpy": (FasterThan("torch.load mmap", 5),),
        },
        model=many(10_000),
    ),
)

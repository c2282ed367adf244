"""Checkpoints of the shape that trainers save: what each saves is spelled here, without the trainers' own libraries."""

from __future__ import annotations

import argparse
import collections
import dataclasses
import datetime
import enum
import functools
import pathlib
import random
import types
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pytest

torch = pytest.importorskip("torch")


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(7, 4)
        self.body = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6), torch.nn.GELU())
        self.head = torch.nn.Linear(6, 3)
        self.register_buffer("cache", torch.zeros(2), persistent=False)

    def forward(self, ids):
        return self.head(self.body(self.embed(ids)))


@dataclasses.dataclass
class TrainConfig:
    """A class that no reader can know."""

    lr: float = 0.1
    layers: tuple[int, ...] = (1, 2)


class Stage(enum.Enum):
    TRAIN = 1


class AttributeDict(dict):
    """As Lightning keeps its hyperparameters."""


class Average:
    """As training scripts keep their meters."""

    def __init__(self) -> None:
        self.total, self.count = 1.5, 3


class Metrics(NamedTuple):
    loss: float
    accuracy: float


class Callback:
    def __init__(self, patience: int) -> None:
        self.patience, self.best = patience, torch.tensor(0.25)


def net() -> Net:
    torch.manual_seed(0)
    return Net()


def trained(optimizer: Callable[..., Any], **options: Any) -> tuple[Net, Any]:
    model = net()
    made = optimizer(model.parameters(), **options)
    for _ in range(2):
        made.zero_grad()
        model(torch.arange(5)).square().sum().backward()
        made.step()
    return model, made


def prefixed(state: Mapping[str, Any], prefix: str) -> collections.OrderedDict[str, Any]:
    return collections.OrderedDict((prefix + name, value) for name, value in state.items())


def lightning(model, optimizer, **more: Any) -> dict[str, Any]:
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
    return {
        "epoch": 3,
        "global_step": 120,
        "pytorch-lightning_version": "2.5.0",
        "state_dict": prefixed(model.state_dict(), "model."),
        "loops": {
            "fit_loop": {"state_dict": {}, "epoch_progress": {"total": {"ready": 4, "completed": 3}}},
            "validate_loop": {"state_dict": {}},
        },
        "callbacks": {
            "ModelCheckpoint{'monitor': 'val_loss', 'mode': 'min'}": {
                "monitor": "val_loss",
                "best_model_score": torch.tensor(0.125),
                "best_model_path": "/logs/epoch=3.ckpt",
                "best_k_models": {"/logs/epoch=3.ckpt": torch.tensor(0.125)},
                "kth_value": torch.tensor(0.5),
            },
            "EarlyStopping": {"wait_count": 0, "best_score": torch.tensor(0.125), "patience": 3},
        },
        "optimizer_states": [optimizer.state_dict()],
        "lr_schedulers": [scheduler.state_dict()],
        **more,
    }


def plain_adam() -> Any:
    model, optimizer = trained(torch.optim.Adam)
    return {"epoch": 1, "model": model.state_dict(), "optimizer": optimizer.state_dict(), "loss": 0.25}


def namespace_arguments() -> Any:
    args = argparse.Namespace(lr=0.1, layers=[1, 2], out=pathlib.Path("/runs/a"), device=torch.device("cpu"))
    return {"state_dict": net().state_dict(), "args": args, "epoch": 1, "best_acc1": torch.tensor(75.5)}


def numpy_scalars() -> Any:
    best = {"acc": np.float64(0.75), "loss": np.float32(0.5), "step": np.int64(9), "done": np.bool_(True)}
    return {"model": net().state_dict(), "best": best, "half": np.float16(1.5), "z": np.complex64(1 + 2j)}


def numpy_arrays() -> Any:
    arrays = {
        "f4": np.arange(6, dtype="f4").reshape(2, 3),
        "fortran": np.asfortranarray(np.arange(24, dtype="f8").reshape(2, 3, 4)),
        "big": np.arange(5, dtype=">i4"),
        "big_fortran": np.asfortranarray(np.arange(6, dtype=">c8").reshape(3, 2)),
        "scalar": np.array(3.5),
        "empty": np.zeros((0, 3), "i2"),
        "bools": np.array([True, False]),
        "bytes": np.arange(256, dtype="u1"),
    }
    return {"model": net().state_dict(), "mean_std": arrays}


def numpy_arrays_that_are_no_numbers() -> Any:
    return {
        "model": net().state_dict(),
        "names": np.array(["a", "b"]),
        "objects": np.array([None, {"a": 1}], dtype=object),
        "when": np.array(["2024-01-01"], dtype="M8[D]"),
        "word": np.str_("text"),
    }


def imagenet_example() -> Any:
    """As the reference training scripts for ImageNet save it, with DistributedDataParallel."""
    model, optimizer = trained(torch.optim.SGD, lr=0.1, momentum=0.9, nesterov=True)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 30)
    return {
        "epoch": 90,
        "arch": "resnet50",
        "state_dict": prefixed(model.state_dict(), "module."),
        "best_acc1": torch.tensor(76.1),
        "optimizer": optimizer.state_dict(),
        "scheduler": scheduler.state_dict(),
    }


def timm_with_ema() -> Any:
    model, optimizer = trained(torch.optim.AdamW, lr=1e-3, amsgrad=True)
    ema = collections.OrderedDict((name, value.clone() * 0.5) for name, value in model.state_dict().items())
    return {
        "epoch": 12,
        "arch": "vit_tiny",
        "state_dict": model.state_dict(),
        "state_dict_ema": ema,
        "optimizer": optimizer.state_dict(),
        "version": 2,
        "args": argparse.Namespace(
            model="vit_tiny", drop=0.1, mean=(0.5, 0.5, 0.5), resume=None, data=pathlib.Path("d")
        ),
        "amp_scaler": {"scale": 65536.0, "growth_factor": 2.0, "_growth_tracker": 5},
        "metric": np.float64(71.25),
    }


def compiled() -> Any:
    return {"model": prefixed(net().state_dict(), "_orig_mod."), "config": {"compile": True}, "iter_num": 5}


def compiled_and_distributed() -> Any:
    return prefixed(prefixed(net().state_dict(), "_orig_mod."), "module.")


def hf_optimizer() -> Any:
    return trained(torch.optim.AdamW)[1].state_dict()


def hf_rng_state() -> Any:
    return {
        "python": random.Random(1).getstate(),
        "numpy": np.random.RandomState(1).get_state(),
        "cpu": torch.get_rng_state(),
    }


def hf_weights() -> Any:
    return net().state_dict()


def lightning_plain() -> Any:
    return lightning(*trained(torch.optim.Adam))


def lightning_hyperparameters() -> Any:
    hyper = AttributeDict(lr=0.1, dims=[1, 2], path=pathlib.Path("/data"), when=datetime.datetime(2024, 1, 2, 3, 4))
    return lightning(
        *trained(torch.optim.Adam), hparams_name="kwargs", hyper_parameters=hyper, datamodule_hyper_parameters=hyper
    )


def lightning_objects() -> Any:
    """Hyperparameters that are objects, and a callback that keeps itself."""
    hyper = {
        "config": TrainConfig(),
        "stage": Stage.TRAIN,
        "loss": torch.nn.functional.mse_loss,
        "net": torch.nn.Linear,
    }
    return lightning(*trained(torch.optim.SGD, lr=0.1), hyper_parameters=hyper, callback_object=Callback(3))


def fairseq() -> Any:
    model, optimizer = trained(torch.optim.Adam)
    return {
        "args": None,
        "cfg": {
            "_name": None,
            "common": {"seed": 1, "fp16": True},
            "task": argparse.Namespace(data="/d", max=np.int64(3)),
        },
        "model": model.state_dict(),
        "criterion": {},
        "optimizer_history": [{"criterion_name": "ce", "optimizer_name": "adam", "num_updates": 10}],
        "task_state": {},
        "extra_state": {"metrics": collections.OrderedDict(loss=[np.float32(0.5)]), "previous_training_time": 1.5},
        "last_optimizer_state": optimizer.state_dict(),
    }


def yolo_like() -> Any:
    """The whole model is in the checkpoint, in half precision."""
    return {
        "epoch": -1,
        "best_fitness": np.array([0.5]),
        "model": net().half(),
        "ema": None,
        "updates": 5,
        "opt": {"lr": 0.1},
        "date": datetime.datetime(2024, 5, 6, 7, 8, 9, 10).isoformat(),
    }


def whole_model() -> Any:
    return net()


def meters_and_defaultdicts() -> Any:
    history: dict[str, list[float]] = collections.defaultdict(list)
    history["loss"] += [0.5, 0.25]
    counts: dict[str, int] = collections.defaultdict(int, seen=3)
    nested = collections.defaultdict(functools.partial(collections.defaultdict, int))
    meters = {"loss": Average(), "acc": Average()}
    recent = collections.deque([1.0, 2.0], maxlen=5)
    return {"model": net().state_dict(), "h": history, "c": counts, "n": nested, "meters": meters, "recent": recent}


def dates_and_paths() -> Any:
    zone = datetime.timezone(datetime.timedelta(hours=-3, minutes=-30))
    return {
        "model": net().state_dict(),
        "started": datetime.datetime(2024, 1, 2, 3, 4, 5, 6, tzinfo=zone),
        "day": datetime.date(2024, 2, 29),
        "at": datetime.time(23, 59),
        "took": datetime.timedelta(days=1, seconds=2, microseconds=500000),
        "path": pathlib.PurePosixPath("/runs/1/x.pt"),
        "windows": pathlib.PureWindowsPath("c:/runs/1"),
        "version": torch.__version__,
    }


def dataclass_and_namedtuple() -> Any:
    return {"model": net().state_dict(), "config": TrainConfig(), "metrics": Metrics(0.5, 0.75), "stage": Stage.TRAIN}


def simple_namespaces() -> Any:
    inner = types.SimpleNamespace(scale=torch.full((2,), 3.0), depth=4)
    return {"state": argparse.Namespace(weights=net().state_dict(), cfg=inner)}


def odd_keys() -> Any:
    a, b, c, d, e = torch.arange(5.0).split(1)
    return {0: a, None: b, True: c, (0, "x"): d, 1.5: e, "groups": {("a", 1): a, b"k": b}}


def sparse_and_quantized() -> Any:
    eye = torch.eye(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            "model": net().state_dict(),
            "coo": eye.to_sparse(),
            "csr": eye.to_sparse_csr(),
            "q": torch.quantize_per_tensor(eye, 0.1, 0, torch.qint8),
            "q32": torch.quantize_per_tensor(eye, 0.1, 0, torch.qint32),
            "meta": torch.zeros(2, device="meta"),
        }


def lbfgs() -> Any:
    model = net()
    optimizer = torch.optim.LBFGS(model.parameters())

    def closure():
        optimizer.zero_grad()
        loss = model(torch.arange(5)).square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}


def whole_optimizer() -> Any:
    model, optimizer = trained(torch.optim.Adam)
    return {"model": model.state_dict(), "optimizer": optimizer, "lr": optimizer.param_groups[0]["lr"]}


def tensor_attributes() -> Any:
    weight = torch.nn.Parameter(torch.arange(4.0))
    weight.tag = "tensor parallel"
    weight.config = TrainConfig()
    return {"weight": weight, "buffer": torch.nn.Buffer(torch.ones(2))}


def mixed_precision() -> Any:
    state = {name: value.to(torch.bfloat16) for name, value in net().state_dict().items() if value.is_floating_point()}
    return {
        "module": state,
        "scaler": {"scale": torch.tensor(2.0**16), "_growth_tracker": torch.tensor(3)},
        "dtype": torch.bfloat16,
    }


def deepspeed_like() -> Any:
    model, optimizer = trained(torch.optim.Adam)
    return {
        "module": model.state_dict(),
        "buffer_names": ["body.1.running_mean"],
        "optimizer": {"base_optimizer_state": optimizer.state_dict(), "clip_grad": 1.0, "group_paddings": [0]},
        "param_shapes": [collections.OrderedDict((name, value.shape) for name, value in model.named_parameters())],
        "sparse_tensor_module_names": set(),
        "skipped_steps": 0,
        "ds_config": pathlib.Path("ds.json"),
        "ds_version": "0.16.0",
    }


def reinforcement_learning() -> Any:
    return {
        "policy": net().state_dict(),
        "running_mean": np.zeros(4),
        "running_var": np.ones(4, "f4"),
        "replay": collections.deque([np.arange(2.0), np.arange(3.0)], maxlen=10),
        "rng": np.random.RandomState(3).get_state(),
        "action_range": slice(0, 4, None),
        "steps": range(3),
        "seen": frozenset([1, 2]),
    }


CHECKPOINTS: dict[str, Callable[[], Any]] = {
    made.__name__: made
    for made in (
        *(plain_adam, namespace_arguments, numpy_scalars, numpy_arrays, numpy_arrays_that_are_no_numbers),
        *(imagenet_example, timm_with_ema, compiled, compiled_and_distributed, hf_optimizer, hf_rng_state, hf_weights),
        *(lightning_plain, lightning_hyperparameters, lightning_objects, fairseq, yolo_like, whole_model),
        *(meters_and_defaultdicts, dates_and_paths, dataclass_and_namedtuple, simple_namespaces, odd_keys),
        *(sparse_and_quantized, lbfgs, whole_optimizer, tensor_attributes, mixed_precision, deepspeed_like),
        *(reinforcement_learning,),
    )
}

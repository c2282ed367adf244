"""The same mistake raises the same kind of error, whether a tensor goes through `save_file` or through `torch.classes.store`."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import weightstore
import weightstore.torch


def freed() -> torch.Tensor:
    tensor = torch.ones(3)
    tensor.untyped_storage().resize_(0)
    return tensor


def fake() -> torch.Tensor:
    with FakeTensorMode():
        return torch.ones(3)


def quantized() -> torch.Tensor:
    return torch.quantize_per_tensor(torch.ones(3), 1.0, 0, torch.quint8)


# name: (the tensor, the class that both doors raise)
CASES: dict[str, tuple[Callable[[], torch.Tensor], type[Exception]]] = {
    "complex128": (lambda: torch.ones(2, dtype=torch.complex128), weightstore.InvalidArgument),
    "complex32": (lambda: torch.ones(2, dtype=torch.complex32), weightstore.InvalidArgument),
    "quantized": (quantized, weightstore.InvalidArgument),
    "bits": (lambda: torch.ones(2, dtype=torch.uint8).view(torch.bits8), weightstore.InvalidArgument),
    "meta": (lambda: torch.ones(2, device="meta"), weightstore.NoDataError),
    "meta without elements": (lambda: torch.ones(0, device="meta"), weightstore.NoDataError),
    "sparse": (lambda: torch.ones(2, 2).to_sparse(), weightstore.InvalidArgument),
    "sparse rows": (lambda: torch.ones(2, 2).to_sparse_csr(), weightstore.InvalidArgument),
    "nested": (lambda: torch.nested.nested_tensor([torch.ones(1), torch.ones(2)]), weightstore.InvalidArgument),
    "freed storage": (freed, weightstore.InvalidArgument),
    "fake": (fake, weightstore.InvalidArgument),
}


def error_of(call: Callable[[], object]) -> weightstore.StoreError:
    with pytest.raises(weightstore.StoreError) as caught:
        call()
    return caught.value


def kinds_of(error: BaseException) -> set[type]:
    """Its public classes, without the one that says what kind of file the error is about."""
    places = (weightstore.CheckpointError, weightstore.SafetensorsError)
    return {cls for cls in type(error).__mro__ if cls.__name__.isidentifier() and cls not in places}


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch warns of sparse, nested and quantized tensors
@pytest.mark.parametrize("case", CASES)
def test_both_doors_raise_the_same_kind(tmp_path: Path, case: str) -> None:
    make, expected = CASES[case]
    verb = error_of(lambda: weightstore.torch.save_file({"t": make()}, tmp_path / "a.safetensors"))
    saver = error_of(lambda: weightstore.Saver(path=tmp_path / "c", tensors={"t": make()}).save())
    assert isinstance(verb, expected), verb
    assert isinstance(saver, expected), saver
    assert kinds_of(verb) == kinds_of(saver)
    assert isinstance(saver, weightstore.CheckpointError)
    assert verb.tensor == saver.tensor == "t"
    assert not any(tmp_path.iterdir())

"""What a module holds in place of a weight that is not in memory."""

from __future__ import annotations

from typing import Any

import torch

from .. import errors

# What can be known of a weight without its values.
_KNOWN = (
    frozenset(
        getattr(torch.Tensor, name).__get__
        for name in (
            "shape dtype device layout requires_grad grad grad_fn is_leaf ndim is_meta is_cuda is_cpu is_sparse is_sparse_csr "
            "is_quantized is_nested is_mkldnn is_mps is_xpu is_xla is_ipu is_vulkan is_maia itemsize nbytes names retains_grad "
            "output_nr is_mtia"
        ).split()
        if hasattr(getattr(torch.Tensor, name, None), "__get__")
    )
    | frozenset(
        getattr(torch.Tensor, name)
        for name in (
            "size dim numel nelement element_size stride is_floating_point is_complex is_contiguous is_signed __len__ ndimension "
            "storage_offset is_inference get_device __hash__ __format__"
        ).split()
        if hasattr(torch.Tensor, name)
    )
    | {torch.is_floating_point, torch.is_complex, torch.numel}
)


class Placeholder(torch.nn.Parameter):
    """Has the shape, type and device of a weight, and no values: to compute with it is an error that names the weight."""

    weight_name: str
    block_name: str

    def __new__(cls, like: torch.Tensor, dtype: torch.dtype, weight_name: str, block_name: str) -> Placeholder:
        with torch.inference_mode(False):
            data = torch.zeros((), dtype=dtype).expand(like.shape)
            made: Placeholder = torch.Tensor._make_subclass(cls, data, False)
        made.weight_name = weight_name
        made.block_name = block_name
        return made

    def __init__(self, like: torch.Tensor, dtype: torch.dtype, weight_name: str, block_name: str) -> None:
        pass

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _KNOWN or (func is torch.Tensor.requires_grad_ and args[1:2] == (False,)):
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))
        raise next(value for value in _flat(args, kwargs) if isinstance(value, Placeholder)).error()

    def error(self) -> errors.StoreError:
        return errors.make(
            "invalid_argument",
            f"is offloaded: its values are in memory only while '{self.block_name}' runs. To use it from another module, name a "
            "module that contains both in blocks=. For state_dict(), to(), copies and training, load the weights: "
            "close(load=True)",
            format="pager",
            tensor=self.weight_name,
        )

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"<offloaded weight {self.weight_name!r} {self.dtype} {list(self.shape)}>"

    def __deepcopy__(self, memo: Any) -> Any:
        raise self.error()

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise self.error()


def _flat(args: Any, kwargs: Any) -> Any:
    for value in (*args, *(kwargs or {}).values()):
        if isinstance(value, (list, tuple)):
            yield from _flat(value, None)
        else:
            yield value

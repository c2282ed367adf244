"""`safetensors.torch`, by weightstore.torch.

Names that begin with an underscore are not public in safetensors either. `torch.distributed.checkpoint` imports `_getdtype`,
and the tests of the package the others.
"""

from weightstore._tensors import aliases
from weightstore._tensors.aliases import _is_complete  # noqa: F401
from weightstore._tensors.dtypes import torch_dtype as _getdtype  # noqa: F401
from weightstore.torch import *  # noqa: F403


def _end_ptr(tensor):
    return aliases.memory_range(tensor)[1]


def _find_shared_tensors(tensors):
    groups = aliases.shared_groups(tensors)
    return groups + [{name} for name in tensors if not any(name in group for group in groups)]


def _remove_duplicate_names(tensors, *, preferred_names=None, discard_names=None):
    return aliases.names_to_drop(tensors, preferred_names or ())

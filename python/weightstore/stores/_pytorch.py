"""Files of torch.save."""

from __future__ import annotations

from ._read_only import ReadOnlyStore


class PytorchStore(ReadOnlyStore):
    """Loads modules from files that torch.save() wrote: state dicts, checkpoints and whole models; and from plain pickles of
    a dict of arrays. Executes nothing in a file.

    map_indices_contiguous is "auto" and skip_enum_variants is True unless you set them.
    """

    _format = "pytorch"
    _default_skip_enum_variants = True
    _default_map_indices = "auto"

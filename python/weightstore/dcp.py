"""Storage for torch.distributed.checkpoint: `save`, `async_save` and `load` on SafeTensors files.

>>> import torch.distributed.checkpoint as dcp
>>> from weightstore.dcp import StorageReader, StorageWriter
>>> dcp.save(state, storage_writer=StorageWriter("ckpt"))
>>> dcp.load(state, storage_reader=StorageReader("ckpt"))

docs/distributed.md has the rules, and a program for torchrun.
"""

from ._dcp.reader import StorageReader
from ._dcp.staging import Stager
from ._dcp.writer import StorageWriter

__all__ = ["StorageReader", "StorageWriter", "Stager"]

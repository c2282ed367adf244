"""`limits=`: limits of bytes are sizes, as everywhere; other limits are numbers."""

import numpy as np
import pytest

import weightstore
import weightstore.numpy
from weightstore.errors import InvalidArgument, LimitError

DATA = weightstore.numpy.save({"a": np.ones(3)})


@pytest.mark.parametrize("size", ["1KB", "1 KiB", "1000", 1000])
def test_a_limit_that_is_enough(size):
    with weightstore.open(DATA, limits={"safetensors_header_bytes": size}) as file:
        assert file["a"].numpy().tolist() == [1, 1, 1]


@pytest.mark.parametrize("size", ["10B", "0.01KB", "0", 10])
def test_a_limit_that_is_too_small(size):
    with pytest.raises(LimitError):
        weightstore.open(DATA, limits={"safetensors_header_bytes": size})


def test_what_is_no_size():
    with pytest.raises(InvalidArgument, match="limits: 'safetensors_header_bytes' must be .* '400MB'"):
        weightstore.open(DATA, limits={"safetensors_header_bytes": "much"})
    with pytest.raises(InvalidArgument, match="'rank' is '4'; it is an integer"):
        weightstore.open(DATA, limits={"rank": "4"})

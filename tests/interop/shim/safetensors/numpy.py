"""`safetensors.numpy`, by weightstore.numpy."""

from weightstore.numpy import *  # noqa: F403

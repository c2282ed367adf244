"""Every public class, function and method has a docstring."""

import inspect

import pytest

import weightstore
import weightstore.compat
import weightstore.numpy
import weightstore.torch


def undocumented(cls):
    for name in dir(cls):
        found = inspect.getattr_static(cls, name)
        function = found.fget if isinstance(found, property) else getattr(found, "__func__", found)
        is_ours = (getattr(function, "__module__", None) or "").startswith("weightstore") or isinstance(found, property)
        if not name.startswith("_") and is_ours and (callable(function)) and not inspect.getdoc(getattr(cls, name)):
            yield name


@pytest.mark.parametrize("module", [weightstore, weightstore.numpy, weightstore.torch, weightstore.compat])
def test_names_of_a_module(module):
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.isclass(value):
            assert value.__doc__, name
            if not issubclass(value, Exception):
                assert list(undocumented(value)) == [], name
        elif callable(value):
            assert value.__doc__, name

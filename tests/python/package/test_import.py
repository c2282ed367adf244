"""What importing the package brings in, and what the module `_core` has."""

from __future__ import annotations

import ast
import builtins
import os
import subprocess
import sys

import pytest

import weightstore
from weightstore import _core


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_import_is_light():
    code = "import sys, weightstore; print([m for m in ('torch', 'ml_dtypes', 'numpy', 'tqdm') if m in sys.modules])"
    assert run(code) == "[]"


def test_using_files_needs_no_torch(tmp_path):
    code = f"""
import sys
sys.modules["torch"] = None
import numpy as np, weightstore, weightstore.numpy
weightstore.numpy.save_file({{"t": np.zeros(3)}}, {str(tmp_path / "m.safetensors")!r})
with weightstore.open({str(tmp_path / "m.safetensors")!r}) as f:
    print(f["t"].numpy().tolist(), f._repr_html_()[:3])
"""
    assert run(code) == "[0.0, 0.0, 0.0] <p>"


def test_stores_need_no_torch(tmp_path):
    code = f"""
import sys
sys.modules["torch"] = None
import numpy as np
from weightstore import BurnpackStore, BurnToPyTorchAdapter, FloatCastAdapter, SafetensorsStore
for kind in (BurnpackStore, SafetensorsStore):
    store = kind.from_file({str(tmp_path)!r} + "/" + kind.__name__).with_to_adapter(FloatCastAdapter("F16"))
    store.collect_from({{"a": {{"w": np.arange(3.0)}}}})
    for zero_copy in (True, False):
        target = {{"a": {{"w": np.zeros(3, "f4")}}}}
        result = store.zero_copy(zero_copy).with_from_adapter(BurnToPyTorchAdapter(), types={{"a": "Linear"}}).apply_to(target)
        assert result.applied == ["a.w"], result
        assert target["a"]["w"].tolist() == [0, 1, 2]
print("torch" in sys.modules and sys.modules["torch"])
"""
    assert run(code) == "None"


def test_every_name_is_there():
    for name in weightstore.__all__:
        assert getattr(weightstore, name) is not None
    assert set(weightstore.__all__) <= set(dir(weightstore))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = weightstore.nothing


def test_import_star_leaves_the_builtins_alone():
    assert not set(weightstore.__all__) & set(vars(builtins))
    code = "import builtins; from weightstore import *; print(open is builtins.open, safe_open.__name__)"
    assert run(code) == "True safe_open"
    assert callable(weightstore.open)
    assert "open" in dir(weightstore)


def test_without_ml_dtypes(tmp_path):
    code = """
import sys
sys.modules["ml_dtypes"] = None
import weightstore
from weightstore import _core
writer = _core.Writer()
writer.add_deferred("t", "BF16", [1], lambda: b"ab")
handle = weightstore.open(writer.write_bytes("safetensors"))["t"]
try:
    handle.numpy()
except TypeError as error:
    print(error)
print(handle.bytes())
"""
    text = run(code)
    assert "install ml_dtypes" in text
    assert ".torch()" in text
    assert ".bytes()" in text
    assert text.endswith("b'ab'")


def test_the_submodules_shadow_nothing():
    code = "import weightstore, weightstore.numpy, numpy; print(numpy.array, weightstore.numpy.save_file)"
    assert "array" in run(code)


def test_import_torch_registers_quietly():
    pytest.importorskip("torch")
    assert run("import weightstore.torch as t; print(callable(t.library_path))") == "True"


def names_of(node: ast.AST) -> set[str]:
    names = set()
    for child in getattr(node, "body", []):
        if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
            names.add(child.name)
        elif isinstance(child, ast.AnnAssign):
            names.add(child.target.id)
    return names


def public(thing: object) -> set[str]:
    return {name for name in vars(thing) if not name.startswith("_")}


def test_the_stub_names_what_the_module_has():
    path = os.path.join(os.path.dirname(weightstore.__file__), "_core.pyi")
    with open(path, encoding="utf-8") as stub:
        tree = ast.parse(stub.read())
    assert names_of(tree) - {"__version__"} == public(_core)
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            stubbed = {name for name in names_of(node) if not name.startswith("_")}
            assert stubbed == public(getattr(_core, node.name)), node.name
    assert _core.__version__ == weightstore.__version__


def test_the_package_is_typed():
    assert os.path.exists(os.path.join(os.path.dirname(weightstore.__file__), "py.typed"))

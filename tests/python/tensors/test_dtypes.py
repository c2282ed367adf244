"""Element types in every form that functions take, and types that compare equal in every form."""

import json
import pickle

import numpy as np
import pytest

import weightstore
import weightstore.numpy as wn
from weightstore import DeferredTensor, FloatCastAdapter, TensorData, TensorSnapshot, _core, collect
from weightstore._tensors.dtypes import DType, stored_name

FORMS = [
    ("F32", "F32"),
    ("f32", "F32"),
    ("float32", "F32"),
    ("Float32", "F32"),
    ("torch.float32", "F32"),
    ("fp32", "F32"),
    (np.float32, "F32"),
    (np.dtype("<f4"), "F32"),
    (np.dtype(">f4"), "F32"),
    (float, "F64"),
    ("double", "F64"),
    ("half", "F16"),
    ("HALF", "F16"),
    ("BF16", "BF16"),
    ("bf16", "BF16"),
    ("bfloat16", "BF16"),
    ("I8", "I8"),
    ("int8", "I8"),
    ("i64", "I64"),
    ("U8", "U8"),
    ("uint8", "U8"),
    (np.uint8, "U8"),
    ("F4", "F4"),
    ("float4_e2m1fn_x2", "F4"),
    ("bool", "BOOL"),
    (bool, "BOOL"),
    ("f8_e4m3", "F8_E4M3"),
    ("float8_e4m3fn", "F8_E4M3"),
    ("flex32", "Flex32"),
    ("qfloat", "QFloat"),
    ("complex64", "C64"),
    (np.complex128, "C128"),
]


@pytest.mark.parametrize(("form", "name"), FORMS, ids=str)
def test_forms(form, name):
    assert stored_name(form) == name
    assert DType(name) == form
    assert (DType(name) != form) is False
    assert DType("I16") != form


@pytest.mark.parametrize("name", [*_core.DTYPES])
def test_every_name_of_files_in_any_letter_case(name):
    assert stored_name(name) == name
    if name.lower() not in ("i8", "u8", "f4"):
        assert stored_name(name.lower()) == name
    assert stored_name(DType(name)) == name


def test_forms_of_torch():
    torch = pytest.importorskip("torch")
    for name in ("bfloat16", "float16", "int8", "bool", "complex32", "complex128", "float8_e5m2", "float4_e2m1fn_x2"):
        form = getattr(torch, name)
        assert stored_name(form) == stored_name(name) == stored_name(str(form))
        assert DType(stored_name(name)) == form
        assert form == DType(stored_name(name))
    with pytest.raises(TypeError, match="qint8"):
        stored_name(torch.qint8)


def test_forms_of_ml_dtypes():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    assert stored_name(ml_dtypes.bfloat16) == "BF16"
    assert stored_name(np.dtype(ml_dtypes.float8_e4m3fn)) == "F8_E4M3"
    assert DType("BF16") == ml_dtypes.bfloat16


@pytest.mark.parametrize("text", ["i8", "u8", "f4"])
def test_names_that_numpy_reads_otherwise_are_refused(text):
    with pytest.raises(TypeError, match="means one type to files and another to numpy"):
        stored_name(text)
    assert DType(text.upper()) != text


@pytest.mark.parametrize("form", ["F33", "", "<f4", "f8", "float", None, 3, 1.5, object(), np.dtype("U3"), [], "é"])
def test_what_is_no_type(form):
    with pytest.raises(TypeError, match="not an element type; types are F64|not an element type; types are"):
        stored_name(form)
    assert DType("F32") != form


def test_a_type_is_text():
    dtype = DType("F32")
    assert isinstance(dtype, str)
    assert {"F32": 1}[dtype] == 1
    assert {dtype: 1}["F32"] == 1
    assert f"{dtype} {dtype!r}" == "F32 'F32'"
    assert json.dumps(dtype) == '"F32"'
    assert pickle.loads(pickle.dumps(dtype)) == dtype
    assert dtype in ("BF16", "F32")
    assert dtype.startswith("F")


def test_every_function_takes_every_form(tmp_path):
    for form, name in FORMS:
        if name == "QFloat":
            continue
        deferred = DeferredTensor(form, (2,), lambda: b"")
        assert deferred.dtype == name == deferred.dtype
        assert TensorSnapshot.from_value("t", deferred).mapped(lambda data: data, dtype=form).dtype == name
    data = TensorData((2,), np.dtype(np.float32), np.ones(2, np.float32).tobytes())
    assert data.dtype == np.float32
    (snapshot,) = collect({"t": np.ones(2, np.float32)})
    assert snapshot.cast("bf16").dtype == "BF16"
    assert snapshot.cast(np.float16).dtype == "half"
    assert FloatCastAdapter("bf16").dtype == FloatCastAdapter("bfloat16").dtype == "BF16"


def test_what_a_file_says_compares_with_every_form(tmp_path):
    path = tmp_path / "m.safetensors"
    wn.save_file({"t": np.ones(4, np.uint8)}, path)
    with weightstore.open(path) as file, weightstore.Pager(path) as pager, pager.acquire("t") as paged:
        for dtype in (file["t"].dtype, file["t"][1:].dtype, paged.dtype):
            assert dtype == "U8"
            assert dtype == np.uint8
            assert dtype == "uint8"
            assert dtype != np.int8

"""A canary in every position of a pickle in which an object can stand: reading never runs it."""

from __future__ import annotations

import argparse
import collections
import datetime
import functools
import io
import pickle
import struct
import types

import numpy as np
import pytest

import weightstore
from support import canary
from support.torch_files import archive, pickle_of_tensor
from support.torch_forms import FORMS, saved
from support.trainer_checkpoints import Metrics, TrainConfig
from weightstore import PytorchError, PytorchStore

torch = pytest.importorskip("torch")


class Zone(datetime.tzinfo):
    def __init__(self, inside) -> None:
        self.inside = inside

    def utcoffset(self, when):
        return datetime.timedelta(0)

    def __reduce__(self):
        return (Zone, (self.inside,))


class Subclass(torch.Tensor):
    pass


class Pair:
    def __init__(self, inside, state) -> None:
        self.inside, self.state = inside, state

    def __reduce__(self):
        return (Pair, (self.inside, None), self.state)


def odict_with_attribute(inside):
    result = collections.OrderedDict(a=1)
    result._metadata = {"": inside}
    return result


def parameter_with_attribute(inside):
    result = torch.nn.Parameter(torch.ones(2))
    result.note = inside
    return result


def module_with(**attributes):
    module = torch.nn.Linear(2, 2)
    for name, value in attributes.items():
        module.__dict__[name] = value
    return module


POSITIONS = {
    "root": lambda c: c,
    "dict value": lambda c: {"x": c},
    "dict key": lambda c: {c: 1} if c.__hash__ else {"x": c},
    "key above a tensor": lambda c: {(c,): torch.ones(1)} if c.__hash__ else {"x": c},
    "list item": lambda c: {"x": [1, c]},
    "tuple item": lambda c: {"x": (c, 1)},
    "deep": lambda c: {"x": [({"y": [c]},)]},
    "set element": lambda c: {"x": {c}} if c.__hash__ else {"x": c},
    "frozenset element": lambda c: {"x": frozenset([c])} if c.__hash__ else {"x": c},
    "namespace": lambda c: {"x": argparse.Namespace(a=c)},
    "simple namespace": lambda c: {"x": types.SimpleNamespace(a=c)},
    "defaultdict value": lambda c: {"x": collections.defaultdict(int, a=c)},
    "defaultdict factory": lambda c: {"x": collections.defaultdict(functools.partial(print, c))},
    "deque": lambda c: {"x": collections.deque([c], 3)},
    "counter": lambda c: {"x": collections.Counter({"a": c})},
    "ordered dict": lambda c: {"x": collections.OrderedDict(a=c)},
    "attribute of an ordered dict": lambda c: {"x": odict_with_attribute(c)},
    "dataclass": lambda c: {"x": TrainConfig(lr=c)},
    "namedtuple": lambda c: {"x": Metrics(c, c)},
    "argument of a call": lambda c: {"x": Pair(c, {"a": 1})},
    "state of an object": lambda c: {"x": Pair(1, {"a": c})},
    "state that is the canary": lambda c: {"x": Pair(1, c)},
    "slice": lambda c: {"x": slice(c, None, None)},
    "time zone": lambda c: {"x": datetime.datetime(2024, 1, 1, tzinfo=Zone(c))},
    "object array": lambda c: {"x": np.array([c, None], dtype=object)},
    "attribute of a parameter": lambda c: {"x": parameter_with_attribute(c)},
    "attribute of a tensor": lambda c: {"x": torch.ones(2).as_subclass(Subclass), "y": parameter_with_attribute([c])},
    "attribute of a module": lambda c: {"x": module_with(extra=c)},
    "parameters of a module": lambda c: {"x": module_with(_parameters={"weight": c, "bias": None})},
    "hooks of a module": lambda c: {"x": module_with(_forward_hooks={1: c})},
    "partial": lambda c: {"x": functools.partial(print, c)},
}


def use(data: bytes, tmp_path) -> list[str]:
    """Does everything that reading can do; returns the types that were left out."""
    path, target = tmp_path / "x.pt", tmp_path / "y.safetensors"
    path.write_bytes(data)
    listed = []
    for opaque in ("skip", "error"):
        try:
            with weightstore.open(path, opaque=opaque) as file:
                for handle in file.values():
                    handle.torch()
                file.load()
                file.verify()
                listed += [value.type for value in file.left_out]
        except PytorchError:
            pass
        for work in (
            lambda opaque=opaque: weightstore.read_config(path, opaque=opaque),
            lambda opaque=opaque: weightstore.convert(path, target, overwrite=True, opaque=opaque),
            lambda opaque=opaque: (
                PytorchStore.from_file(path).opaque(opaque).allow_partial(True).apply_to(torch.nn.Linear(2, 2))
            ),
        ):
            try:
                work()
            except (weightstore.StoreError, ValueError):
                continue
    return listed


@pytest.fixture
def tripped(tmp_path, monkeypatch):
    monkeypatch.setattr(canary, "TRIPPED", tmp_path / "tripped")
    return tmp_path / "tripped"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("position", POSITIONS)
def test_no_canary_is_run(position, tmp_path, tripped):
    for bird in canary.CANARIES:
        for form in FORMS:
            data = saved({"w": torch.ones(3), "below": POSITIONS[position](bird())}, form)
            if position == "root":
                data = saved(bird(), form)
            tripped.unlink(missing_ok=True)
            listed = use(data, tmp_path)
            assert not tripped.exists(), (position, bird, form)
            hidden = ("root", "attribute of a module", "hooks of a module")
            if position not in hidden and bird is not canary.ByItems:
                assert listed, (position, bird, form)
            # The canary sings where a pickle is run.
            try:
                torch.load(io.BytesIO(data), weights_only=False)
            except Exception:  # some canaries do not survive where they stand
                continue
            if bird is canary.ByReduce:
                assert tripped.exists(), (position, bird, form)


def text(words: bytes) -> bytes:
    return b"X" + struct.pack("<I", len(words)) + words


BIRD = b"csupport.canary\ntrip\n)R"
ARRAY = b"cnumpy.core.multiarray\n_reconstruct\n"
DTYPE = b"cnumpy\ndtype\n" + text(b"f4") + b"\x89\x88\x87R"
BYTES = b"C\x04abcd"
STORAGE = (text(b"storage"), b"ctorch\nFloatStorage\n", text(b"0"), text(b"cpu"), b"K\x04")
HAND_MADE = {
    "persistent id": BIRD + b"Q",
    **{
        f"storage id {i}": b"(" + b"".join(BIRD if i == k else part for k, part in enumerate(STORAGE)) + b"tQ"
        for i in range(5)
    },
    **{
        f"argument {i} of a tensor": b"ctorch._utils\n_rebuild_tensor_v2\n("
        + b"".join(
            BIRD if i == k else part
            for k, part in enumerate(
                (b"(" + b"".join(STORAGE) + b"tQ", b"K\x00", b"K\x04\x85", b"K\x01\x85", b"\x89", b"}", b"}")
            )
        )
        + b"tR"
        for i in range(7)
    },
    "hooks of a tensor": pickle_of_tensor().replace(b"ccollections\nOrderedDict\n)R", b"}K\x01" + BIRD + b"s"),
    "class of an array": ARRAY + BIRD + b"K\x00\x85C\x01b\x87R(K\x01K\x01\x85" + DTYPE + b"\x89" + BYTES + b"tb",
    "shape of an array": ARRAY + b"NNN\x87R(K\x01" + BIRD + DTYPE + b"\x89" + BYTES + b"tb",
    "type of an array": ARRAY + b"NNN\x87R(K\x01K\x01\x85" + BIRD + b"\x89" + BYTES + b"tb",
    "elements of an array": ARRAY + b"NNN\x87R(K\x01K\x01\x85" + DTYPE + b"\x89" + BIRD + b"tb",
    "state of an array": ARRAY + b"NNN\x87R" + BIRD + b"b",
    "state of a type": DTYPE + b"(K\x03" + BIRD + b"NNNNNK\x00tb",
    "name of a type": b"cnumpy\ndtype\n" + BIRD + b"\x89\x88\x87R",
    "bytes of a number": b"cnumpy.core.multiarray\nscalar\n" + DTYPE + BIRD + b"\x86R",
    "type of a number": b"cnumpy.core.multiarray\nscalar\n" + BIRD + BYTES + b"\x86R",
    "buffer of an array": b"cnumpy.core.numeric\n_frombuffer\n(" + BIRD + DTYPE + b"K\x01\x85" + text(b"C") + b"tR",
    "part of a path": b"cpathlib\nPosixPath\n" + BIRD + b"\x85R",
    "date": b"cdatetime\ndate\n" + BIRD + b"\x85R",
    "offset of a zone": b"cdatetime\ntimezone\n" + BIRD + b"\x85R",
    "text of bytes": b"c_codecs\nencode\n" + BIRD + text(b"latin1") + b"\x86R",
    "encoding of bytes": b"c_codecs\nencode\n" + text(b"a") + BIRD + b"\x86R",
    "state of a namespace": b"cargparse\nNamespace\n)\x81" + BIRD + b"b",
    "called twice": BIRD + b")R",
    "items": BIRD + b"(K\x01K\x02u",
    "appended": BIRD + b"(K\x01e",
    "state": BIRD + b"}b",
    "a tensor made of it": b"ctorch._tensor\n_rebuild_from_type_v2\n(csupport.canary\ntrip\nctorch\nTensor\n)}tR",
    "the class of a tensor": b"ctorch._tensor\n_rebuild_from_type_v2\n("
    + b"ctorch._utils\n_rebuild_wrapper_subclass\ncsupport.canary\nByNew\n)}tR",
}


@pytest.mark.parametrize("name", HAND_MADE)
def test_no_hand_made_canary_is_run(name, tmp_path, tripped):
    body = b"\x80\x04](" + pickle_of_tensor() + HAND_MADE[name] + b"e."
    use(archive(body), tmp_path)
    use(archive(b"\x80\x04" + HAND_MADE[name] + b"."), tmp_path)
    assert not tripped.exists()


ACTING = [
    *"os.system os.path.join posix.system nt.system subprocess.Popen sys.exit shutil.rmtree socket.socket".split(),
    *"ctypes.CDLL runpy.run_path importlib.import_module builtins.eval builtins.exec builtins.compile".split(),
    *"builtins.open builtins.__import__ __builtin__.eval io.open".split(),
]


@pytest.mark.parametrize("name", ACTING)
def test_names_that_act_refuse_the_file(name):
    module, _, function = name.rpartition(".")
    for made in (
        f"c{module}\n{function}\n".encode(),
        b"\x8c"
        + bytes([len(module)])
        + module.encode()
        + b"\x8c"
        + bytes([len(function)])
        + function.encode()
        + b"\x93",
        f"ctorch.serialization\n{module}.{function}\n".encode(),
    ):
        data = archive(b"\x80\x04](" + pickle_of_tensor() + made + b"e.")
        for opaque in ("skip", "error"):
            for read in (weightstore.open, weightstore.read_config):
                with pytest.raises(PytorchError, match=function) as caught:
                    read(data, opaque=opaque)
                assert "acts" in str(caught.value)


def test_real_exploits_are_refused():
    class Exploit:
        def __init__(self, *call) -> None:
            self.call = call

        def __reduce__(self):
            return self.call

    import os
    import subprocess

    for call in (
        (os.system, ("true",)),
        (eval, ("1",)),
        (exec, ("1",)),
        (open, ("x",)),
        (subprocess.getoutput, ("true",)),
    ):
        for protocol in (2, 4):
            data = archive(pickle.dumps({"w": 1, "x": Exploit(*call)}, protocol))
            with pytest.raises(PytorchError, match="acts"):
                weightstore.open(data)
    # getattr on an unknown class is left out; on a module that acts, it cannot be spelled.
    data = archive(b"\x80\x02](" + pickle_of_tensor() + b"cbuiltins\ngetattr\ncmine\nThing\n" + text(b"x") + b"\x86Re.")
    assert [value.type for value in weightstore.open(data).left_out] == ["builtins.getattr"]

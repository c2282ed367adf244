"""CheckpointManager.restore(): into what is there, in two phases, with other names, and only a part."""

from __future__ import annotations

from pathlib import Path

import pytest

import weightstore
from weightstore import CheckpointManager, PathFilter, ValidationError

torch = pytest.importorskip("torch")
from support.training_runs import Training, equal, saved_run  # noqa: E402


def test_in_place(tmp_path: Path) -> None:
    training, values = saved_run(tmp_path, 2)
    pointers = [value.data_ptr() for value in training.model.state_dict().values()]
    moments = [each["exp_avg"].data_ptr() for each in training.optimizer.state.values()]
    training.step()
    CheckpointManager(tmp_path).restore(training.state())
    assert pointers == [value.data_ptr() for value in training.model.state_dict().values()]
    assert moments == [each["exp_avg"].data_ptr() for each in training.optimizer.state.values()]
    assert equal(training.values(), values[2])


def test_any_step(tmp_path: Path) -> None:
    training, values = saved_run(tmp_path, 4)
    for step in (3, 1, 4):
        restored = CheckpointManager(tmp_path).restore(training.state(), step=step)
        assert restored is not None
        assert restored.step == step
        assert equal(training.values(), values[step])


def test_the_error_lists_all_that_does_not_fit_and_nothing_has_changed(tmp_path: Path) -> None:
    saved_run(tmp_path, 1)
    other = Training(seed=5)
    other.step()
    other.model[0] = torch.nn.Linear(4, 9)
    before = other.values()
    into = {**other.state(), "optimiser": torch.optim.SGD([torch.zeros(1)]), "scheduler": torch.zeros(1)}
    with pytest.raises(ValidationError) as caught:
        CheckpointManager(tmp_path).restore(into)
    lines = str(caught.value).splitlines()
    assert "  'model.0.weight' is torch.float32 [9, 4], but torch.float32 [8, 4] in the file" in lines
    assert "  'model.0.bias' is torch.float32 [9], but torch.float32 [8] in the file" in lines
    assert "  'optimiser' is not in the file; did you mean 'optimizer'?" in lines
    assert "  'scheduler' is a tensor, but not in the file" in lines
    assert equal(other.values(), before)


class Stubborn:
    def state_dict(self) -> dict[str, int]:
        return {"a": 1}

    def load_state_dict(self, state: dict[str, int]) -> None:
        raise ValueError("not today")


def test_nothing_has_changed_when_an_object_refuses(tmp_path: Path) -> None:
    training = Training()
    training.step()
    with CheckpointManager(tmp_path) as manager:
        manager.save(1, training.state(stubborn=Stubborn()))
    other = Training(seed=3)
    other.step()
    before = other.values()
    with pytest.raises(ValueError, match="not today"):
        CheckpointManager(tmp_path).restore(other.state(stubborn=Stubborn()))
    assert equal(other.values(), before)


def test_the_rest_is_read_only_when_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training, _ = saved_run(tmp_path, 1)
    restored = CheckpointManager(tmp_path).restore({"model": training.model})
    assert restored is not None
    assert list(restored) == ["model", "optimizer", "scheduler", "epoch", "rng"]
    assert restored["model"] is training.model
    assert restored["epoch"] == 1
    moment = restored["optimizer"]["state"][0]["exp_avg"]
    assert torch.equal(moment, training.optimizer.state[training.model[0].weight]["exp_avg"])
    assert restored["rng"]["python"][0] == 3
    assert repr(restored) == "<Restored step 1: model, optimizer, scheduler, epoch, rng>"


def test_fine_tuning(tmp_path: Path) -> None:
    body = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
    with CheckpointManager(tmp_path) as manager:
        manager.save(1, {"model": torch.nn.ModuleDict({"backbone": body})})
    manager = CheckpointManager(tmp_path)
    new = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
    with pytest.raises(ValidationError, match=r"pass rename=\[\('\^backbone") as caught:
        manager.restore({"model": new})
    rules = eval(str(caught.value).rpartition("rename=")[2])
    manager.restore({"model": new}, rename=rules)
    assert torch.equal(new[0].weight, body[0].weight)

    head = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 7))
    kept = head[1].weight.clone()
    with pytest.raises(ValidationError, match=r"'model.1.weight' is torch.float32 \[7, 4\]"):
        manager.restore({"model": head}, rename=rules, strict=False)
    manager.restore({"model": head}, rename=rules, filter=PathFilter().with_regex(r"^0\."))
    assert torch.equal(head[0].weight, body[0].weight)
    assert torch.equal(head[1].weight, kept)
    with pytest.raises(ValidationError, match="the filter matches no tensor of 'model'"):
        manager.restore({"model": head}, rename=rules, filter=PathFilter().with_regex("nothing"))

    more = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2), torch.nn.Linear(2, 2))
    with pytest.raises(ValidationError, match=r"'model.2.bias' is not in the file"):
        manager.restore({"model": more}, rename=rules)
    manager.restore({"model": more}, rename=rules, strict=False)
    assert torch.equal(more[1].weight, body[1].weight)
    with pytest.raises(ValidationError, match="has no tensor of 'model'"):
        manager.restore({"model": torch.nn.ModuleDict({"x": torch.nn.Linear(3, 3)})}, strict=False)


def test_wrapped_modules_have_the_names_of_what_they_wrap(tmp_path: Path) -> None:
    plain = torch.nn.Linear(2, 2)
    wrapped = torch.nn.DataParallel(torch.nn.Linear(2, 2))
    compiled = torch.compile(torch.nn.Linear(2, 2), backend="eager")
    with CheckpointManager(tmp_path) as manager:
        for step, module in enumerate((wrapped, compiled)):
            manager.save(step, {"model": module})
            manager.restore({"model": plain})
            inner = module.module if step == 0 else module._orig_mod
            assert torch.equal(plain.weight, inner.weight)
            plain.weight.data.zero_()
            manager.restore({"model": module})


def test_the_stores_take_a_step(tmp_path: Path) -> None:
    training, _ = saved_run(tmp_path, 1)
    other = Training(seed=9)
    path = CheckpointManager(tmp_path).path(1)
    with weightstore.open(path) as file:
        store = weightstore.FileStore(None, file).with_key_remapping(r"^model\.", "")
        store.apply_to(other.model)
    assert torch.equal(other.model[0].weight, training.model[0].weight)


def test_random_generators(tmp_path: Path) -> None:
    import random

    import numpy as np

    with CheckpointManager(tmp_path) as manager:
        manager.save(1, {"rng": True})
        drawn = random.random(), np.random.rand(), torch.rand(1).item()
        manager.restore({"rng": True})
    assert (random.random(), np.random.rand(), torch.rand(1).item()) == drawn

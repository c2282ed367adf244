"""The code of docs/saver.md runs: as it is pasted, and with two shards at once."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from pathlib import Path

import weightstore
from support.torch_classes import torch


def test_the_example_in_the_document(tmp_path, monkeypatch):
    page = Path(__file__).parents[3] / "docs" / "saver.md"
    saving, together, loading, distributed, by_turns, converting, opening, looking = re.findall(
        r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL
    )
    monkeypatch.chdir(tmp_path)
    # One shard's steps up to its save, with a row in its table.
    filled_then_saved = saving.replace("\nsaver =", "\ntable.insert(torch.tensor([id]), row)\nsaver =")
    filled_then_saved, count = re.subn(r"^shard, shard_num = .*\n", "", filled_then_saved, flags=re.MULTILINE)
    assert count == 1
    assert "table.insert" in filled_then_saved
    shards = [
        {"shard": shard, "shard_num": 2, "id": 40000 * shard + 5, "row": torch.full((1, 16), shard + 1.0)}
        for shard in (0, 1)
    ]
    threads = [
        threading.Thread(target=exec, args=(compile(filled_then_saved, page.name, "exec"), names)) for names in shards
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    names = shards[0]
    saved = names["dense"]["w"].clone()
    names["dense"]["w"].zero_()
    exec(compile(together, page.name, "exec"), names)
    exec(compile(loading, page.name, "exec"), names)
    assert torch.equal(names["dense"]["w"], saved)
    assert names["table"].ids().tolist() == [5]  # the other id is in the last third of the buckets
    assert torch.equal(names["table"].lookup(torch.tensor([5]), False)[1], torch.ones(1, 16))
    exec(compile(by_turns, page.name, "exec"), names)
    assert weightstore.CheckpointReader(tmp_path / "by-turns").verify() > 0
    # In a process of its own: it makes a process group.
    program = f"import torch, weightstore\n{distributed}assert torch.equal(whole, weight.to_local())"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
    names["table"] = names["make_table"](1, 2)
    names["dense"]["w"].zero_()
    exec(compile(converting, page.name, "exec"), names)
    assert torch.equal(names["dense"]["w"], saved)
    assert names["table"].ids().tolist() == [40005]
    exec(compile(opening, page.name, "exec"), names)
    found = dict(zip(names["some_ids"].tolist(), names["some_rows"][:, 0].tolist(), strict=True))
    assert found == {5: 1.0, 40005: 2.0}
    exec(compile(looking, page.name, "exec"), names)
    assert dict(zip(names["ids"].tolist(), names["rows"][:, 0].tolist(), strict=True)) == {5: 1.0, 40005: 2.0}


def test_the_example_as_it_is_pasted(tmp_path, monkeypatch):
    """The code of the page needs no name that the page does not define."""
    page = Path(__file__).parents[3] / "docs" / "saver.md"
    monkeypatch.chdir(tmp_path)
    for variable in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(variable, raising=False)
    names: dict = {"__name__": "docs"}
    for snippet in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        exec(compile(snippet, page.name, "exec"), names)
    assert len(names["ids"]) == 0

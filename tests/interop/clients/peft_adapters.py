"""Adapters of peft: written by peft, rewritten by weightstore, and read by both."""

from __future__ import annotations

import pytest
import safetensors
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from tiny_models import INPUT, llama, same

import weightstore
import weightstore.torch
from weightstore import SafetensorsStore, load_from

DTYPES = [torch.float32, torch.bfloat16]


def adapted(dtype=torch.float32, seed=0, **options):
    torch.manual_seed(seed)
    config = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False, **options)
    return get_peft_model(llama(dtype=dtype), config).eval()


@pytest.mark.parametrize("options", [{}, {"modules_to_save": ["lm_head"]}], ids=["lora", "modules_to_save"])
@pytest.mark.parametrize("checksums", [False, True], ids=["plain", "checksums"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rewritten_adapters_are_read(tmp_path, dtype, checksums, options):
    model = adapted(dtype, **options)
    model.save_pretrained(tmp_path)
    path = tmp_path / "adapter_model.safetensors"
    tensors = weightstore.torch.load_file(path)
    assert len(tensors) == 8 + len(options)
    weightstore.torch.save_file(tensors, path, {"format": "pt"}, checksums=checksums)
    loaded = PeftModel.from_pretrained(llama(dtype=dtype), tmp_path).eval()
    assert torch.equal(loaded(INPUT).logits, model(INPUT).logits)


def test_peft_reads_what_it_wrote(tmp_path):
    model = adapted()
    model.save_pretrained(tmp_path)
    loaded = PeftModel.from_pretrained(llama(), tmp_path).eval()
    same(loaded.state_dict(), model.state_dict())
    with safetensors.safe_open(tmp_path / "adapter_model.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}


def test_a_store_loads_an_adapter_under_other_names(tmp_path):
    model, target = adapted(), adapted(seed=9)
    model.save_pretrained(tmp_path)
    store = SafetensorsStore.from_file(tmp_path / "adapter_model.safetensors")
    store = store.with_key_remapping(r"(lora_[AB])\.weight", "$1.default.weight").allow_partial(True)
    result = load_from(target, store)
    assert not result.unused
    assert torch.equal(target(INPUT).logits, model(INPUT).logits)


def test_merged_models_are_saved(tmp_path):
    merged = adapted().merge_and_unload()
    merged.save_pretrained(tmp_path)
    same(weightstore.torch.load_file(tmp_path / "model.safetensors"), merged.state_dict())

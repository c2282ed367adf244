"""Models of transformers run with their weights in a file, and give the outputs of the plain model bit for bit."""

from __future__ import annotations

import pytest
import torch
import transformers

import weightstore
import weightstore.torch

torch.set_num_threads(1)
SMALL = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "vocab_size": 100}


def llama():
    config = transformers.LlamaConfig(num_hidden_layers=6, num_key_value_heads=2, max_position_embeddings=64, **SMALL)
    return transformers.LlamaForCausalLM, config


def tied_llama():
    cls, config = llama()
    config.tie_word_embeddings = True
    return cls, config


def mixtral():
    config = transformers.MixtralConfig(
        num_hidden_layers=4, num_key_value_heads=2, num_local_experts=4, max_position_embeddings=64, **SMALL
    )
    return transformers.MixtralForCausalLM, config


def bert():
    return transformers.BertForMaskedLM, transformers.BertConfig(
        num_hidden_layers=6, max_position_embeddings=64, **SMALL
    )


MODELS = {"llama": llama, "tied_llama": tied_llama, "mixtral": mixtral, "bert": bert}
INPUT = torch.arange(1, 9).reshape(1, 8)


@pytest.fixture(params=MODELS)
def model(request, tmp_path):
    torch.manual_seed(3)
    cls, config = MODELS[request.param]()
    made = cls(config).eval()
    made.save_pretrained(tmp_path / "whole")
    made.save_pretrained(tmp_path / "shards", max_shard_size="200KB")
    if any("experts.gate_up_proj" in name for name in made.state_dict()):
        # transformers 5 splits joined experts when it saves: give the files the names of the module.
        tensors = made.state_dict()
        weightstore.torch.save_file(tensors, tmp_path / "whole" / "model.safetensors")
        index = tmp_path / "shards" / "model.safetensors.index.json"
        weightstore.torch.save_file(tensors, index, max_shard_size="200KB")
    weightstore.convert(tmp_path / "whole" / "model.safetensors", tmp_path / "model.bpk")
    return made, tmp_path


def empty_like(model):
    with weightstore.empty_weights():
        return type(model)(model.config).eval()


@pytest.mark.parametrize("source", ["whole/model.safetensors", "shards/model.safetensors.index.json", "model.bpk"])
def test_outputs_are_the_same(model, source):
    plain, directory = model
    with torch.no_grad():
        expected = plain(INPUT).logits
    offloaded = empty_like(plain)
    size = sum(p.numel() * p.element_size() for p in {id(p): p for p in plain.parameters()}.values())
    with weightstore.offload_module(offloaded, directory / source, budget=size * 3 // 4) as handle:
        for mode in (torch.no_grad, torch.inference_mode, torch.no_grad):
            with mode():
                assert torch.equal(offloaded(INPUT).logits, expected)
        assert handle.pager.stats()["peak_live_bytes"] <= size * 3 // 4


def test_generate(model):
    plain, directory = model
    if not plain.can_generate():
        pytest.skip("does not generate")
    options = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0}
    expected = plain.generate(INPUT, **options)
    offloaded = empty_like(plain)
    offloaded.generation_config = plain.generation_config
    with weightstore.offload_module(
        offloaded, directory / "whole/model.safetensors", budget="600KB", pinned=["embeddings", "head"]
    ) as handle:
        assert torch.equal(offloaded.generate(INPUT, **options), expected)
        assert handle.pager.is_pinned(next(name for name in handle.pager.names() if "embed" in name))


def test_a_model_of_the_meta_device_lacks_its_rotary_table(model):
    plain, directory = model
    if not any("inv_freq" in name for name, _ in plain.named_buffers()):
        pytest.skip("has no rotary table")
    with torch.device("meta"):
        offloaded = type(plain)(plain.config).eval()
    with pytest.raises(weightstore.InvalidArgument, match=r"inv_freq.*empty_weights"):
        weightstore.offload_module(offloaded, directory / "whole/model.safetensors")

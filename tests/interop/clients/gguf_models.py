"""Models of transformers, written as llama.cpp writes them, and loaded from the file by transformers and by weightstore: both are
the same, bit for bit."""

from __future__ import annotations

import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
import transformers
from tiny_models import INPUT, made, same

sys.path.insert(0, str(Path(__file__).parents[2]))
import weightstore
from support import llama_conventions as llama

SIZES = {
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-6,
}
# By architecture of GGUF: the model, what its configuration has beside the sizes, and what transformers reads of that. Sizes that
# transformers does not read from the file are its defaults.
MODELS = {
    "llama": ("Llama", {}, {}),
    "qwen2": ("Qwen2", {}, {}),
    "qwen3": ("Qwen3", {"head_dim": 128}, {}),
    # transformers 4 takes the default of 60 experts, whatever the file says.
    "qwen2moe": (
        "Qwen2Moe",
        {"num_experts": 60, "num_experts_per_tok": 2},
        {"expert_count": 60, "expert_used_count": 2},
    ),
    "qwen3moe": (
        "Qwen3Moe",
        {"num_experts": 4, "num_experts_per_tok": 2, "head_dim": 32, "norm_topk_prob": True},
        {"expert_count": 4, "expert_used_count": 2, "attention.key_length": 32},
    ),
    "gemma2": ("Gemma2", {"head_dim": 32}, {"attention.key_length": 32}),
    "gemma3": ("Gemma3", {"head_dim": 32}, {"attention.key_length": 32}),
}


def model_of(architecture: str, tied: bool):
    name, more, _ = MODELS[architecture]
    text = "Text" if name == "Gemma3" else ""
    config = getattr(transformers, f"{name}{text}Config")(**SIZES, **more, tie_word_embeddings=tied)
    return made(getattr(transformers, f"{name}ForCausalLM"), config)


def metadata_of(architecture: str) -> dict[str, object]:
    values = {
        "context_length": 64,
        "block_count": 2,
        "feed_forward_length": 96,
        "embedding_length": 64,
        "attention.head_count": 4,
        "attention.head_count_kv": 2,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "vocab_size": 128,
        **MODELS[architecture][2],
    }
    return {f"{architecture}.{key}": value for key, value in values.items()}


@pytest.mark.parametrize(("kind", "tied"), [("F32", False), ("Q8_0", True), ("Q4_0", False)])
@pytest.mark.parametrize("architecture", MODELS)
def test_both_load_the_same_model(tmp_path, architecture, tied, kind):
    tied = tied or architecture.startswith("gemma")  # whose files never have a head
    model = model_of(architecture, tied)
    values = {
        name: tensor.numpy() for name, tensor in model.state_dict().items() if not (tied and name == "lm_head.weight")
    }
    quantized = None if kind == "F32" else gguf.GGMLQuantizationType[kind]
    path = tmp_path / "model.gguf"
    llama.write(path, llama.converted(values, architecture, 4, 2), architecture, metadata_of(architecture), quantized)

    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file=path.name, dtype=torch.float32
    ).eval()
    ours = made(type(theirs), theirs.config, seed=9)
    store = weightstore.FileStore.from_file(path).with_from_adapter(weightstore.GgufToHuggingFaceAdapter)
    result = weightstore.load_from(ours, store.allow_unused(False))
    assert not result.missing
    same(ours.state_dict(), theirs.state_dict())
    assert torch.equal(ours(INPUT).logits, theirs(INPUT).logits)
    if kind == "F32":
        for name, value in values.items():
            found = ours.state_dict()[name].numpy()
            if architecture.startswith("gemma") and "norm" in name:
                value = (value + np.float32(1)) - np.float32(1)
            assert np.array_equal(found, value), name

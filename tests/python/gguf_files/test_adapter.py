"""GgufToHuggingFaceAdapter on the names and shapes of transformers' models. `make interop` runs the models themselves."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

import weightstore
from support import llama_conventions as llama

HEADS, KV_HEADS, HIDDEN, INNER, EXPERTS = 4, 2, 64, 96, 3


def tensors(architecture, *, stacked=None, tied=False, mixtral=False):
    """Of one layer, under the names of transformers. stacked: how experts are kept; None for none."""
    random = np.random.default_rng(0)
    shapes = {
        "model.embed_tokens.weight": (10, HIDDEN),
        "model.norm.weight": (HIDDEN,),
        "model.layers.0.input_layernorm.weight": (HIDDEN,),
        "model.layers.0.post_attention_layernorm.weight": (HIDDEN,),
        "model.layers.0.self_attn.q_proj.weight": (HIDDEN, HIDDEN),
        "model.layers.0.self_attn.k_proj.weight": (HIDDEN // 2, HIDDEN),
        "model.layers.0.self_attn.v_proj.weight": (HIDDEN // 2, HIDDEN),
        "model.layers.0.self_attn.o_proj.weight": (HIDDEN, HIDDEN),
    }
    before = "model.layers.0."
    if not tied:
        shapes["lm_head.weight"] = (10, HIDDEN)
    if architecture == "qwen2":
        shapes |= {f"{before}self_attn.q_proj.bias": (HIDDEN,), f"{before}self_attn.k_proj.bias": (HIDDEN // 2,)}
    if architecture in ("qwen3", "qwen3moe", "gemma3"):
        shapes |= {f"{before}self_attn.q_norm.weight": (16,), f"{before}self_attn.k_norm.weight": (16,)}
    if architecture in ("gemma2", "gemma3"):
        shapes |= {f"{before}{name}_feedforward_layernorm.weight": (HIDDEN,) for name in ("pre", "post")}
    moe = "block_sparse_moe" if mixtral and not stacked else "mlp"
    if stacked is None:
        shapes |= {f"{before}mlp.{name}_proj.weight": (INNER, HIDDEN) for name in ("gate", "up")}
        shapes[f"{before}mlp.down_proj.weight"] = (HIDDEN, INNER)
    else:
        shapes[f"{before}{moe}.gate.weight"] = (EXPERTS, HIDDEN)
    if stacked is True:
        shapes[f"{before}mlp.experts.gate_up_proj"] = (EXPERTS, 2 * INNER, HIDDEN)
        shapes[f"{before}mlp.experts.down_proj"] = (EXPERTS, HIDDEN, INNER)
    if stacked is False:
        for name, mixtral_name, shape in (
            ("gate_proj", "w1", (INNER, HIDDEN)),
            ("up_proj", "w3", (INNER, HIDDEN)),
            ("down_proj", "w2", (HIDDEN, INNER)),
        ):
            kind = mixtral_name if mixtral else name
            shapes |= {f"{before}{moe}.experts.{i}.{kind}.weight": shape for i in range(EXPERTS)}
    if architecture == "qwen2moe":
        shapes |= {f"{before}mlp.shared_expert.{name}_proj.weight": (INNER, HIDDEN) for name in ("gate", "up")}
        shapes |= {
            f"{before}mlp.shared_expert.down_proj.weight": (HIDDEN, INNER),
            f"{before}mlp.shared_expert_gate.weight": (1, HIDDEN),
        }
    return {name: random.standard_normal(shape, np.float32) for name, shape in shapes.items()}


def written(path, values, architecture, quantized=None):
    metadata = {
        f"{architecture}.attention.head_count": HEADS,
        f"{architecture}.attention.head_count_kv": KV_HEADS,
    }
    llama.write(path, llama.converted(values, architecture, HEADS, KV_HEADS), architecture, metadata, quantized)


def loaded(path, values, adapter=weightstore.GgufToHuggingFaceAdapter):
    target = {name: np.zeros_like(value) for name, value in values.items()}
    store = weightstore.FileStore.from_file(path).with_from_adapter(adapter).allow_unused(False)
    result = weightstore.load_from(target, store)
    assert sorted(result.applied) == sorted(values)
    return target


@pytest.mark.parametrize(
    ("architecture", "stacked", "mixtral"),
    [
        ("llama", None, False), ("llama", True, True), ("llama", False, True), ("qwen2", None, False),
        ("qwen3", None, False), ("qwen2moe", True, False), ("qwen2moe", False, False), ("qwen3moe", True, False),
        ("qwen3moe", False, False), ("gemma", None, False), ("gemma2", None, False), ("gemma3", None, False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("quantized", [None, gguf.GGMLQuantizationType.Q8_0], ids=["f32", "q8_0"])
def test_every_architecture(tmp_path, architecture, stacked, mixtral, quantized):
    values = tensors(architecture, stacked=stacked, mixtral=mixtral)
    written(tmp_path / "m.gguf", values, architecture, quantized)
    found = loaded(tmp_path / "m.gguf", values)
    for name, value in values.items():
        if quantized is not None:
            np.testing.assert_allclose(found[name], value, atol=0.05)
        elif "norm" in name and architecture.startswith("gemma"):
            np.testing.assert_array_equal(found[name], (value + np.float32(1)) - np.float32(1))
        else:
            np.testing.assert_array_equal(found[name], value)


def test_renaming_alone_would_load_wrong_numbers(tmp_path):
    """What the adapter is for: the file has the rows in another order."""
    values = tensors("llama")
    written(tmp_path / "m.gguf", values, "llama")
    stored = weightstore.open(tmp_path / "m.gguf")["blk.0.attn_q.weight"].numpy()
    assert not np.array_equal(stored, values["model.layers.0.self_attn.q_proj.weight"])


def test_a_model_without_a_head_and_heads_of_each_layer(tmp_path):
    values = {name.removeprefix("model."): value for name, value in tensors("llama", tied=True).items()}
    named = {f"model.{name}": value for name, value in values.items()}
    metadata = {"llama.attention.head_count": [HEADS], "llama.attention.head_count_kv": [KV_HEADS]}
    llama.write(tmp_path / "m.gguf", llama.converted(named, "llama", HEADS, KV_HEADS), "llama", metadata)
    found = loaded(tmp_path / "m.gguf", values)
    np.testing.assert_array_equal(found["layers.0.self_attn.k_proj.weight"], values["layers.0.self_attn.k_proj.weight"])


def test_another_architecture_is_an_error(tmp_path):
    llama.write(tmp_path / "m.gguf", {"w": np.ones(3, np.float32)}, "mamba", {})
    with pytest.raises(weightstore.StoreError, match="architecture of the file is 'mamba'; this adapter knows llama"):
        loaded(tmp_path / "m.gguf", {"w": np.ones(3, np.float32)})


def test_metadata_that_lack_the_heads(tmp_path):
    values = tensors("llama")
    llama.write(tmp_path / "m.gguf", llama.converted(values, "llama", HEADS, KV_HEADS), "llama", {})
    with pytest.raises(weightstore.StoreError, match="no 'llama.attention.head_count'"):
        loaded(tmp_path / "m.gguf", values)
    metadata = {"llama.attention.head_count": 5}
    llama.write(tmp_path / "m.gguf", llama.converted(values, "llama", HEADS, KV_HEADS), "llama", metadata)
    with pytest.raises(weightstore.StoreError, match="rows are not 5 heads of two halves"):
        loaded(tmp_path / "m.gguf", values)


def test_types_and_chains(tmp_path):
    import torch

    values = tensors("qwen2")
    written(tmp_path / "m.gguf", values, "qwen2", gguf.GGMLQuantizationType.Q8_0)
    target = {name: torch.zeros(value.shape, dtype=torch.bfloat16) for name, value in values.items()}
    adapter = weightstore.GgufToHuggingFaceAdapter("BF16").chain(weightstore.ModuleAdapter())
    weightstore.load_from(target, weightstore.FileStore.from_file(tmp_path / "m.gguf").with_from_adapter(adapter))
    expected = torch.from_numpy(values["lm_head.weight"])
    assert target["lm_head.weight"].dtype == torch.bfloat16
    torch.testing.assert_close(target["lm_head.weight"].float(), expected, atol=0.05, rtol=0)
    assert repr(adapter.adapters[0]) == "GgufToHuggingFaceAdapter('BF16')"


def test_rope_frequencies_are_not_loaded(tmp_path):
    values = tensors("llama")
    made = llama.converted(values, "llama", HEADS, KV_HEADS) | {"rope_freqs.weight": np.ones(8, np.float32)}
    llama.write(
        tmp_path / "m.gguf", made, "llama", {"llama.attention.head_count": HEADS, "llama.attention.head_count_kv": 2}
    )
    loaded(tmp_path / "m.gguf", values)

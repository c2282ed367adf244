"""How llama.cpp writes the models of transformers: names, permuted rows, normalizations plus 1, stacked experts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gguf
import numpy as np

Array = np.ndarray[Any, Any]

NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp",
    "block_sparse_moe.gate": "ffn_gate_inp",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
}
GEMMA2 = {
    **NAMES,
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
OUTER = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
EXPERTS = {"gate_proj": "gate", "up_proj": "up", "down_proj": "down", "w1": "gate", "w3": "up", "w2": "down"}


def permuted(rows: Array, heads: int) -> Array:
    """The halves of each head in turns."""
    return rows.reshape(heads, 2, -1, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def converted(tensors: Mapping[str, Array], architecture: str, heads: int, kv_heads: int) -> dict[str, Array]:
    """The tensors of a model as llama.cpp stores them. Experts may be apart (transformers 4) or stacked (transformers 5)."""
    names = GEMMA2 if architecture in ("gemma2", "gemma3") else NAMES
    made: dict[str, Array] = {}
    experts: dict[tuple[str, str], dict[int, Array]] = {}
    for name, value in tensors.items():
        owner, _, kind = name.rpartition(".")
        if architecture.startswith("gemma") and owner.endswith("norm"):
            value = value + np.float32(1)
        if architecture == "llama" and owner.endswith(("q_proj", "k_proj")):
            value = permuted(value, heads if owner.endswith("q_proj") else kv_heads)
        if owner in OUTER:
            made[f"{OUTER[owner]}.{kind}"] = value
            continue
        _, _, layer, inner = name.split(".", 3)
        if inner == "mlp.experts.gate_up_proj":
            gate, up = np.split(value, 2, axis=1)
            made[f"blk.{layer}.ffn_gate_exps.weight"] = np.ascontiguousarray(gate)
            made[f"blk.{layer}.ffn_up_exps.weight"] = np.ascontiguousarray(up)
        elif inner == "mlp.experts.down_proj":
            made[f"blk.{layer}.ffn_down_exps.weight"] = value
        elif ".experts." in inner:
            number, part = inner.split(".")[2:4]
            experts.setdefault((layer, EXPERTS[part]), {})[int(number)] = value
        else:
            part = inner.rpartition(".")[0]
            made[f"blk.{layer}.{names[part]}.{kind}"] = value[0] if part == "mlp.shared_expert_gate" else value
    for (layer, part), of in experts.items():
        made[f"blk.{layer}.ffn_{part}_exps.weight"] = np.stack([of[i] for i in sorted(of)])
    return made


def write(
    path: Any,
    tensors: Mapping[str, Array],
    architecture: str,
    metadata: Mapping[str, Any],
    quantized: gguf.GGMLQuantizationType | None = None,
) -> None:
    """Writes converted() tensors with the writer of the gguf package. quantized: what matrices become."""
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in metadata.items():
        if isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, list):
            writer.add_array(key, value)
        else:
            writer.add_uint32(key, value)
    for name, value in tensors.items():
        if quantized is not None and value.ndim >= 2 and value.shape[-1] % 32 == 0 and "gate_inp" not in name:
            writer.add_tensor(name, gguf.quants.quantize(value, quantized), raw_dtype=quantized)
        else:
            writer.add_tensor(name, np.ascontiguousarray(value))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

"""Small models of several kinds, made from configurations; nothing is downloaded."""

from __future__ import annotations

import torch
import transformers
from transformers import (
    BertConfig,
    BertForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

INPUT = torch.tensor([[1, 2, 3, 4]])


def llama(tied: bool = False, dtype: torch.dtype = torch.float32, seed: int = 0) -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=128,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=tied,
        dtype=str(dtype).removeprefix("torch."),
    )
    return made(LlamaForCausalLM, config, dtype, seed)


def made(kind, config, dtype: torch.dtype = torch.float32, seed: int = 0):
    torch.manual_seed(seed)
    return kind(config).to(dtype).eval()


MODELS = {
    "llama": llama,
    "llama tied": lambda: llama(tied=True),
    "llama bf16": lambda: llama(dtype=torch.bfloat16),
    "llama tied bf16": lambda: llama(tied=True, dtype=torch.bfloat16),
    "gpt2 tied": lambda: made(
        GPT2LMHeadModel, GPT2Config(vocab_size=128, n_embd=32, n_layer=2, n_head=4, n_positions=64)
    ),
    "bert tied": lambda: made(
        BertForMaskedLM,
        BertConfig(vocab_size=128, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64),
    ),
    "t5 tied": lambda: made(
        T5ForConditionalGeneration,
        T5Config(vocab_size=128, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, decoder_start_token_id=0),
    ),
}


def another(model):
    """A model of the same kind with other values."""
    return made(type(model), model.config, next(model.parameters()).dtype, seed=9)


def same(found, expected) -> None:
    """Two state dicts have the same names, types, shapes and bits."""
    assert found.keys() == expected.keys(), sorted(found.keys() ^ expected.keys())[:6]
    for name, tensor in expected.items():
        assert (found[name].dtype, found[name].shape) == (tensor.dtype, tensor.shape), name
        assert torch.equal(bits(found[name]), bits(tensor)), name


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().flatten().view(torch.uint8)


def entry(directory, stem="model"):
    """The file to open in a directory that a library wrote: the index of a set, or the only file."""
    index = directory / f"{stem}.safetensors.index.json"
    return index if index.exists() else directory / f"{stem}.safetensors"

"""From the names and conventions of llama.cpp's files to the models of transformers."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import numpy as np

from .. import errors
from .._files.dequantized import DequantizedTensor, dequantized, number_type
from .._tensors import dtypes
from .adapters import ModuleAdapter
from .snapshot import TensorData, TensorSnapshot
from .values.original import FileTensor, Produced

_LAYER = re.compile(r"blk\.([0-9]+)\.([a-z_]+)\.(weight|bias)")

# What the models of transformers call the tensors outside of layers. Models make the table of `rope_freqs` themselves.
_OUTER = {
    "token_embd.weight": "embed_tokens.weight",
    "output_norm.weight": "norm.weight",
    "output.weight": "lm_head.weight",
    "rope_freqs.weight": None,
}
# And those inside, in all models.
_INNER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate_shexp": "mlp.shared_expert.gate_proj",
    "ffn_up_shexp": "mlp.shared_expert.up_proj",
    "ffn_down_shexp": "mlp.shared_expert.down_proj",
    "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
}
# Gemma 2 and 3 have a normalization behind each part of a layer, too.
_GEMMA2 = _INNER | {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_NAMES = {
    "llama": _INNER,
    "qwen2": _INNER,
    "qwen2moe": _INNER,
    "qwen3": _INNER,
    "qwen3moe": _INNER,
    "gemma": _INNER,
    "gemma2": _GEMMA2,
    "gemma3": _GEMMA2,
}
# The matrices of the experts, and what transformers 4 calls them in Qwen's models and in Mixtral's.
_EXPERTS = {
    "ffn_gate_exps": ("gate_proj", "w1"),
    "ffn_up_exps": ("up_proj", "w3"),
    "ffn_down_exps": ("down_proj", "w2"),
}


class GgufToHuggingFaceAdapter(ModuleAdapter):
    """Loads GGUF files of Llama, Mistral, Mixtral, Qwen 2 and 3 (also with experts) and Gemma 1 to 3 into models of transformers.

    Renames the tensors, dequantizes them, and undoes what llama.cpp does to them: it permutes the rows of Llama's queries and
    keys, adds 1 to the weights of Gemma's normalizations, and stacks the matrices of experts. The architecture and the numbers
    of heads are in the metadata of the file. Any other architecture is an error.

    dtype: the type that quantized tensors become on the way; the parameters keep their own. Values that change are computed in
        F32.
    """

    def __init__(self, dtype: Any = "F32") -> None:
        self.dtype = number_type(dtype)

    def adapt_file(
        self, snapshots: Mapping[str, TensorSnapshot], metadata: Mapping[str, Any], wanted: Collection[str]
    ) -> dict[str, TensorSnapshot]:
        architecture = metadata.get("general.architecture")
        if architecture not in _NAMES:
            text = f"the architecture of the file is {architecture!r}; this adapter knows {', '.join(_NAMES)}"
            raise errors.make("unsupported", text)
        model = _Model(architecture, metadata, set(wanted), self.dtype)
        return {
            made.full_path: made
            for name, snapshot in snapshots.items()
            for made in model.convert(name, snapshot, snapshots)
        }

    def __repr__(self) -> str:
        return f"GgufToHuggingFaceAdapter({self.dtype!r})"


class _Model:
    def __init__(self, architecture: str, metadata: Mapping[str, Any], wanted: set[str], dtype: str) -> None:
        self._architecture = architecture
        self._metadata = metadata
        self._wanted = wanted
        self._dtype = dtype
        # "model." in a model with a head, nothing in one without.
        embeddings = [name for name in wanted if name.endswith("embed_tokens.weight")]
        self._prefix = min(embeddings, key=len).removesuffix("embed_tokens.weight") if embeddings else "model."

    def convert(
        self, name: str, snapshot: TensorSnapshot, all_snapshots: Mapping[str, TensorSnapshot]
    ) -> Iterator[TensorSnapshot]:
        """The tensors that the model has for one of the file."""
        if name in _OUTER:
            outer = _OUTER[name]
            if outer is not None:
                path = outer if outer == "lm_head.weight" else self._prefix + outer
                yield self._numbers(name, snapshot).renamed(path)
            return
        found = _LAYER.fullmatch(name)
        if found is None:
            yield snapshot
            return
        layer, part, kind = found.groups()
        before = f"{self._prefix}layers.{layer}."
        if part in _EXPERTS and kind == "weight":
            yield from self._experts(before, part, snapshot, all_snapshots.get(name.replace("_gate_", "_up_")))
            return
        other = _NAMES[self._architecture].get(part)
        if other is None:
            yield snapshot
            return
        if part == "ffn_gate_inp" and f"{before}block_sparse_moe.gate.weight" in self._wanted:
            other = "block_sparse_moe.gate"  # Mixtral in transformers 4
        changed = self._numbers(name, snapshot)
        if self._architecture == "llama" and part in ("attn_q", "attn_k"):
            changed = _with_rows(changed, _split_halves(self._heads(part, int(layer)), name, snapshot.shape))
        if part == "ffn_gate_inp_shexp" and len(snapshot.shape) == 1:
            changed = changed.mapped(lambda data: data.buffer, shape=(1, *snapshot.shape))
        yield changed.renamed(f"{before}{other}.{kind}")

    def _numbers(self, name: str, snapshot: TensorSnapshot) -> TensorSnapshot:
        """Dequantized, and for a normalization of Gemma without the 1."""
        if dtypes.is_quantized(snapshot._values.dtype):
            snapshot = snapshot.dequantized(self._dtype)
        if self._architecture.startswith("gemma") and name.endswith("norm.weight"):
            return snapshot.cast("F32").mapped(lambda data: data.numpy() - np.float32(1))
        return snapshot

    def _heads(self, part: str, layer: int) -> int:
        """How many heads the queries or keys of a layer have."""
        before = f"{self._architecture}.attention.head_count"
        if before not in self._metadata:
            raise errors.make("corrupt", f"the metadata have no '{before}', which tells how rows are permuted")
        count = (
            self._metadata.get(before + "_kv", self._metadata[before]) if part == "attn_k" else self._metadata[before]
        )
        return int(count[layer] if isinstance(count, list) else count)

    def _experts(
        self, before: str, part: str, snapshot: TensorSnapshot, up: TensorSnapshot | None
    ) -> Iterator[TensorSnapshot]:
        """transformers 5 keeps experts stacked, with gate and up in one tensor; transformers 4 keeps them apart."""
        stacked = f"{before}mlp.experts.{'down_proj' if part == 'ffn_down_exps' else 'gate_up_proj'}"
        numbers = self._rows_of(snapshot)
        if stacked not in self._wanted:
            qwen, mixtral = _EXPERTS[part]
            is_mixtral = f"{before}block_sparse_moe.experts.0.{mixtral}.weight" in self._wanted
            for expert in range(snapshot.shape[0]):
                path = f"block_sparse_moe.experts.{expert}.{mixtral}" if is_mixtral else f"mlp.experts.{expert}.{qwen}"
                yield _made(f"{before}{path}.weight", self._dtype, snapshot.shape[1:], _one(numbers, expert))
        elif part == "ffn_down_exps":
            yield _made(stacked, self._dtype, snapshot.shape, numbers.numpy)
        elif part == "ffn_gate_exps" and up is not None:
            count, rows, columns = snapshot.shape
            yield _made(stacked, self._dtype, (count, 2 * rows, columns), _joined(numbers, self._rows_of(up)))

    def _rows_of(self, snapshot: TensorSnapshot) -> DequantizedTensor:
        """The numbers of a tensor of the file, of which parts are read without the rest."""
        values = snapshot._values
        assert isinstance(values, FileTensor)
        return dequantized(values.source, values.number, self._dtype, None)


def _made(path: str, dtype: str, shape: tuple[int, ...], produce: Callable[[], Any]) -> TensorSnapshot:
    return TensorSnapshot(path, Produced(dtype, shape, produce))


def _one(numbers: DequantizedTensor, expert: int) -> Callable[[], Any]:
    return lambda: numbers[expert].bytes()


def _joined(gate: DequantizedTensor, up: DequantizedTensor) -> Callable[[], Any]:
    return lambda: np.concatenate([gate.numpy(), up.numpy()], axis=1)


def _split_halves(heads: int, name: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """The order of rows that puts the two halves of every head one behind the other again, where llama.cpp has them in turns."""
    if heads <= 0 or shape[0] % (2 * heads):
        raise errors.make("corrupt", f"{shape[0]} rows are not {heads} heads of two halves", tensor=name)
    return np.arange(shape[0]).reshape(heads, -1, 2).swapaxes(1, 2).reshape(-1)


def _with_rows(snapshot: TensorSnapshot, order: np.ndarray[Any, Any]) -> TensorSnapshot:
    def take(data: TensorData) -> Any:
        rows = np.frombuffer(data.buffer, np.uint8).reshape(len(order), -1)
        return memoryview(rows[order]).cast("B")

    return snapshot.mapped(take)

"""Mixtures of quantized experts against dequantized weights, at once and captured."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("gguf")

import ubridge as ub
from tests.sampling import SOAK
from tests.ubridge.models.cases import Array, drawn, prompt
from tests.ubridge.models.files import written
from tests.ubridge.models.gguf_files import all_of, written_gguf
from tests.ubridge.op_rows import OP_ROWS, row_of
from ubridge.models import Model, experts
from uhal import Device

DEVICES = tuple(row.name for row in OP_ROWS if row.name != "tops-sim")
"""GCUs multiply by dense weights."""
IN_EVERY_RUN = (("host", "mixtral"), ("host", "qwen3_moe"), ("rocm", "qwen3_moe"))
"""Translating kernels for other devices is slow."""
LAYERS, WIDE, INNER, EXPERTS = 2, 256, 256, 5


def drawn_model(kind: str, seed: int) -> tuple[dict[str, Any], dict[str, Array]]:
    """A Mixtral or a Qwen3-MoE whose rows are whole blocks of 256."""
    config: dict[str, Any] = {
        **{"model_type": kind, "hidden_size": WIDE, "intermediate_size": INNER},
        **{"num_hidden_layers": LAYERS, "num_attention_heads": 4, "num_key_value_heads": 2},
        **{"vocab_size": 97, "max_position_embeddings": 128, "rms_norm_eps": 1e-5},
        **{"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}, "head_dim": 64},
        **{"num_experts_per_tok": 2, "moe_intermediate_size": INNER, "norm_topk_prob": True},
        "num_experts" if kind == "qwen3_moe" else "num_local_experts": EXPERTS,
    }
    is_mixtral = kind == "mixtral"
    block = "block_sparse_moe" if is_mixtral else "mlp"
    names = ("w1", "w3", "w2") if is_mixtral else ("gate_proj", "up_proj", "down_proj")
    shapes: dict[str, tuple[int, ...]] = {
        **{"model.embed_tokens.weight": (97, WIDE), "lm_head.weight": (97, WIDE)},
        "model.norm.weight": (WIDE,),
    }
    for layer in range(LAYERS):
        own = f"model.layers.{layer}"
        shapes |= {f"{own}.{one}_layernorm.weight": (WIDE,) for one in ("input", "post_attention")}
        for name, rows in (("q", 256), ("k", 128), ("v", 128), ("o", 256)):
            shapes[f"{own}.self_attn.{name}_proj.weight"] = (rows, WIDE)
        if not is_mixtral:
            shapes |= {f"{own}.self_attn.{one}_norm.weight": (64,) for one in "qk"}
        shapes[f"{own}.{block}.gate.weight"] = (EXPERTS, WIDE)
        for expert in range(EXPERTS):
            for name, shape in zip(
                names, ((INNER, WIDE), (INNER, WIDE), (WIDE, INNER)), strict=True
            ):
                shapes[f"{own}.{block}.experts.{expert}.{name}.weight"] = shape
    return config, {name: drawn(name, shape, seed) for name, shape in shapes.items()}


def dequantized(weights: dict[str, Array], format: str) -> dict[str, Array]:
    """Return the weights as numbers after quantization, which a model quantized at load uses."""

    def rounded(name: str, values: Array) -> Array:
        if values.ndim != 2 or name.endswith((".mlp.gate.weight", "block_sparse_moe.gate.weight")):
            return values
        return ub.QuantizedWeight.from_numpy(values, format).to_numpy()

    return {name: rounded(name, values) for name, values in weights.items()}


def assert_near(got: Array, expected: Array) -> None:
    """Check most tokens: another rounding may choose another expert for a few tokens."""
    off = np.abs(got - expected).max(1) / np.abs(expected).max()
    assert np.median(off) <= 0.08, off


@pytest.mark.drawn(2)
@pytest.mark.parametrize("kind", ["mixtral", "qwen3_moe"])
@pytest.mark.parametrize("format", ["q8_0", "q4_K", "q4_0"])
def test_quantized_at_load(host: Device, tmp_path: Path, seed: int, kind: str, format: str) -> None:
    config, weights = drawn_model(kind, seed)
    model = Model.load(written(tmp_path, config, weights), quantize=format)
    got = model(prompt(seed)).to_numpy()
    with pytest.MonkeyPatch.context() as patch:
        # Replace the chosen experts by their neighbors: the check must detect wrong experts.
        honest = experts.routed

        def other(*given: Any) -> tuple[ub.DeviceTensor, ub.DeviceTensor]:
            shares, chosen = honest(*given)
            ids = (chosen.to_numpy() + 1) % EXPERTS
            return shares, ub.asarray(ids.astype(np.uint32))

        patch.setattr(experts, "routed", other)
        wrong = model(prompt(seed)).to_numpy()
    (tmp_path / "dense").mkdir()
    dense = Model.load(written(tmp_path / "dense", config, dequantized(weights, format)))
    expected = dense(prompt(seed)).to_numpy()
    assert_near(got, expected)
    with pytest.raises(AssertionError):
        assert_near(wrong, expected)


@pytest.mark.parametrize("kind", ["mixtral", "qwen3_moe"])
def test_of_a_gguf_file_at_once_and_captured(
    device: Device, tmp_path: Path, seed: int, kind: str
) -> None:
    """A step has three products of experts in each layer, and copies nothing to the host."""
    row_of(device.backend).require_images()
    if not SOAK and (device.backend, kind) not in IN_EVERY_RUN:
        pytest.skip("a soak's")
    config, weights = drawn_model(kind, seed)
    path = written_gguf(tmp_path / "model.gguf", config, weights, all_of("Q8_0"))
    tokens = prompt(seed)[: 24 if device.backend == "host" else 4]
    model = Model.load(path, device=device)
    at_once = model(tokens).to_numpy()
    with model.cache(len(tokens)) as cache:
        rows = [model.logits([one], cache).to_numpy() for one in tokens]
        assert cache.step is not None
        names = Counter(node.op.name for node in cache.step.graph.nodes if node.op is not None)
        assert names["indexed_product"] == 3 * LAYERS
        assert cache.step.plan.verify(token=tokens[0], position=1)
    assert_near(np.stack(rows), at_once)
    if device.backend == "host":
        stored = ub.load(path)
        whole = {name: stored[name].to_numpy().astype(np.float32) for name in stored}
        dense = tmp_path / "dense.gguf"
        ub.save(dense, whole, metadata=dict(stored.metadata))
        assert_near(at_once, Model.load(dense)(tokens).to_numpy())

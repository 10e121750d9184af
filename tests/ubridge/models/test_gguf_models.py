"""Models from GGUF files: the logits of the same weights in safetensors, or near them."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("gguf")

import ubridge as ub
from tests.sampling import SOAK
from tests.ubridge.activation_data import rounded_to_8_bits
from tests.ubridge.models import equations
from tests.ubridge.models.cases import EQUATIONS, Array, drawn, prompt
from tests.ubridge.models.files import known, shapes_of, written
from tests.ubridge.models.gguf_files import all_of, q4_k_m, written_gguf
from tests.ubridge.models.judging import SEED
from tests.ubridge.models.test_rows import assert_near, assert_read_alike
from ubridge.models import Model, decoder
from ubridge.models.body import Weight
from uhal import Device

CASES = (
    *("llama", "llama_tied", "llama_biased", "llama31", "llama_linear", "mistral02", "phi", "phi3"),
    *("phi3_long", "stablelm1", "stablelm2", "stablelm12b", "gpt_bigcode", "starcoder2"),
    *("glm4", "qwen2", "qwen3", "falcon7b", "falcon40b", "gemma", "gemma2", "mixtral"),
)


_NOT_TOLD = {
    "starcoder2": {"sliding_window": None},
    "gemma2": {"query_pre_attn_scalar": 24},
}
"""Settings that such files cannot hold, with llama.cpp's defaults."""


@pytest.mark.parametrize("case", CASES)
def test_f32_is_the_model_of_transformers(host: Device, tmp_path: Path, case: str) -> None:
    if case in _NOT_TOLD:
        config, weights, _ = known(case)
        config |= _NOT_TOLD[case]
        expected = Model.load(written(tmp_path, config, weights))(prompt(SEED)).to_numpy()
    else:
        config, weights, expected = known(case)
    path = written_gguf(tmp_path / "model.gguf", config, weights, all_of("F32"))
    model = Model.load(path)
    assert model.end_tokens == (2,)
    assert model.source == path
    assert_read_alike(model, prompt(SEED), expected, case)


def test_chatglm(host: Device, tmp_path: Path, seed: int) -> None:
    config = EQUATIONS["chatglm"]
    weights = {n: drawn(n, s, seed) for n, s in shapes_of("chatglm", config).items()}
    wide = {name: values.astype(np.float64) for name, values in weights.items()}
    expected = equations.chatglm(config, wide.__getitem__, prompt(seed))
    path = written_gguf(tmp_path / "model.gguf", config, weights, all_of("F32"))
    assert_near(Model.load(path)(prompt(seed)).to_numpy(), expected, "chatglm", 0.9)


LAYERS = 3


def wide_weights(seed: int) -> tuple[dict[str, object], dict[str, Array]]:
    """A LLaMA whose rows are whole blocks of 256."""
    config = {
        **{"model_type": "llama", "hidden_size": 256, "intermediate_size": 512},
        **{"num_hidden_layers": LAYERS, "num_attention_heads": 4, "num_key_value_heads": 2},
        **{"vocab_size": 97, "max_position_embeddings": 128, "rms_norm_eps": 1e-5},
        **{"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}, "head_dim": 64},
    }
    shapes = {"model.embed_tokens.weight": (97, 256), "lm_head.weight": (97, 256)}
    found: dict[str, tuple[int, ...]] = {**shapes, "model.norm.weight": (256,)}
    for layer in range(LAYERS):
        own = f"model.layers.{layer}"
        found |= {f"{own}.{one}_layernorm.weight": (256,) for one in ("input", "post_attention")}
        for name, rows in (("q", 256), ("k", 128), ("v", 128), ("o", 256)):
            found[f"{own}.self_attn.{name}_proj.weight"] = (rows, 256)
        for name in ("gate", "up"):
            found[f"{own}.mlp.{name}_proj.weight"] = (512, 256)
        found[f"{own}.mlp.down_proj.weight"] = (256, 512)
    return config, {name: drawn(name, shape, seed) for name, shape in found.items()}


KINDS = {"F16": all_of("F16"), "Q8_0": all_of("Q8_0"), "Q4_K_M": q4_k_m(LAYERS)}


def products_of(rounded: Callable[[Array, int], Array]) -> Callable[..., tuple[Any, ...]]:
    """Return a function for f32 products of block weights and x, rounded in the formats' runs."""

    def products(
        x: ub.DeviceTensor, weights: Sequence[Weight], batch_invariant: bool = False
    ) -> tuple[ub.DeviceTensor, ...]:
        found = []
        for weight in weights:
            if isinstance(weight, ub.QuantizedWeight):
                given = rounded(x.to_numpy(), weight.format.activations).astype(np.float32)
                found.append(ub.linear(ub.asarray(given), weight, activations="f32"))
            else:
                found.append(ub.linear(x, weight))
        return tuple(found)

    return products


@pytest.mark.drawn(1)
@pytest.mark.parametrize("kind", KINDS)
def test_quantized_weights_are_what_dense_ones_of_them_are(
    host: Device, tmp_path: Path, kind: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compare with a file of the dequantized weights: only the rounding of activations differs."""
    config, weights = wide_weights(seed)
    path = written_gguf(tmp_path / "model.gguf", config, weights, KINDS[kind])
    model = Model.load(path)
    in_8_bits = model(prompt(seed)).to_numpy()
    monkeypatch.setattr(decoder, "products", products_of(lambda x, run: x))
    got = model(prompt(seed)).to_numpy()
    monkeypatch.setattr(decoder, "products", products_of(rounded_to_8_bits))
    pairs = np.reshape(prompt(seed), (-1, 2)).tolist()
    explained = [model(pair).to_numpy() for pair in pairs]
    monkeypatch.undo()
    stored = ub.load(path)
    whole = {name: stored[name].to_numpy().astype(np.float32) for name in stored}
    dense = tmp_path / "dense.gguf"
    ub.save(dense, whole, metadata=dict(stored.metadata))
    expected = Model.load(dense)(prompt(seed)).to_numpy()
    bound = {"F16": 5e-3, "Q8_0": 2e-2, "Q4_K_M": 2e-2}[kind]
    assert np.abs(got - expected).max() <= bound * np.abs(expected).max()
    # The step of 8-bit activations is 1/127 of the largest value in a block. Errors of eight such
    # files, relative to the largest logit: llama.cpp (llama-cpp-python 0.3.36) has maxima of 0.025
    # to 0.046 and root mean squares of 0.0056 to 0.0101. ubridge has maxima of 0.025 to 0.047 and
    # root mean squares of 0.0057 to 0.0102.
    bound *= 1 if kind == "F16" else 4
    # Use texts of two tokens: a sum in another order may round to another integer, which changes
    # later values. Most short texts avoid this.
    rounded = [model(pair).to_numpy() for pair in pairs]
    off = np.abs(np.array(rounded) - explained).max((1, 2)) / np.abs(expected).max()
    assert np.median(off) <= 2e-6
    apart = np.abs(in_8_bits - expected) / np.abs(expected).max()
    assert apart.max() <= bound and np.sqrt((apart**2).mean()) <= 0.016
    with model.cache() as cache:
        rows = [model.logits([one], cache).to_numpy() for one in prompt(seed)[:12]]
    assert np.abs(np.stack(rows) - expected[:12]).max() <= bound * np.abs(expected).max()


def test_quantized_at_load(host: Device, tmp_path: Path, seed: int) -> None:
    config, weights = wide_weights(seed)
    folder = written(tmp_path, config, weights)
    expected = Model.load(folder)(prompt(seed)).to_numpy()
    for format, bound in (("q8_0", 0.05), ("q4_K", 0.5)):
        got = Model.load(folder, quantize=format)(prompt(seed)).to_numpy()
        error = np.sqrt(np.mean((got - expected) ** 2) / np.mean(expected**2))
        assert 1e-4 < error < bound, (format, error)


# -- beside llama.cpp ----------------------------------------------------------------------------

_LLAMA_CPP = """
import ctypes, json, sys
import numpy as np
import llama_cpp as l

path, tokens = sys.argv[1], json.loads(sys.argv[2])
l.llama_backend_init()
how = l.llama_model_default_params()
how.n_gpu_layers, how.use_extra_bufts = 0, False
model = l.llama_model_load_from_file(path.encode(), how)
assert model, "not loaded"
how = l.llama_context_default_params()
how.n_ctx, how.n_batch, how.n_threads, how.n_threads_batch = 128, 128, 1, 1
how.type_k = how.type_v = 0
how.flash_attn_type = 0
context = l.llama_init_from_model(model, how)
vocabulary = l.llama_vocab_n_tokens(l.llama_model_get_vocab(model))
batch = l.llama_batch_init(len(tokens), 0, 1)
batch.n_tokens = len(tokens)
for place, token in enumerate(tokens):
    batch.token[place], batch.pos[place], batch.n_seq_id[place] = token, place, 1
    batch.seq_id[place][0], batch.logits[place] = 0, 1
assert l.llama_decode(context, batch) == 0
rows = [
    np.ctypeslib.as_array(l.llama_get_logits_ith(context, place), (vocabulary,)).copy()
    for place in range(len(tokens))
]
np.save(sys.argv[3], np.stack(rows))
"""
JUDGE = next((p for p in (sys.executable,) if importlib.util.find_spec("llama_cpp")), None)


def of_llama_cpp(path: Path, tokens: Sequence[int], python: str) -> Array:
    """Return llama.cpp's logits of a file: caches of f32, no flash attention, one thread."""
    out = path.with_suffix(".npy")
    command = [python, "-c", _LLAMA_CPP, str(path), json.dumps(list(tokens)), str(out)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr[-2000:]
    found: Array = np.load(out)
    return found


@pytest.mark.skipif(JUDGE is None, reason="llama-cpp-python is not installed")
@pytest.mark.parametrize("kind", ["F32", *KINDS])
def test_logits_are_near_those_of_llama_cpp(
    host: Device, tmp_path: Path, kind: str, seed: int
) -> None:
    config, weights = wide_weights(seed)
    path = written_gguf(
        tmp_path / "model.gguf", config, weights, {"F32": all_of("F32"), **KINDS}[kind]
    )
    assert JUDGE is not None
    expected = of_llama_cpp(path, prompt(seed), JUDGE)
    got = Model.load(path)(prompt(seed)).to_numpy()
    largest = np.abs(expected).max()
    bound = {"F32": 1e-4, "F16": 5e-3, "Q8_0": 4e-2, "Q4_K_M": 4e-2}[kind]
    assert np.abs(got - expected).max() <= bound * largest
    if kind == "F32":
        assert_near(got, expected, "llama.cpp", 0.9)


@pytest.mark.skipif(JUDGE is None or not SOAK, reason="of every row in a soak")
@pytest.mark.parametrize("case", CASES)
def test_every_row_beside_llama_cpp(host: Device, tmp_path: Path, case: str) -> None:
    config, weights, _ = known(case)
    path = written_gguf(tmp_path / "model.gguf", config, weights, all_of("F32"))
    assert JUDGE is not None
    # llama.cpp ignores the window of Phi-3 in these files.
    tokens = prompt(SEED)[: config.get("sliding_window") or None if case == "phi3" else None]
    expected = of_llama_cpp(path, tokens, JUDGE)
    got = Model.load(path)(tokens).to_numpy()
    # llama.cpp computes GELU by a table of f16.
    is_silu = Model.load(path).design.activation == "silu"
    bound = 1e-4 if is_silu else 5e-3
    assert np.abs(got - expected).max() <= bound * np.abs(expected).max()

"""A published model with trained weights: stories260K of llama2.c, if its file is beside the clone.

Its text is compared with llama2.c's, its perplexity with the equations in float64.
"""

from __future__ import annotations

import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import ubridge as ub
from tests.conftest import SEED
from tests.sampling import SOAK, rounds
from tests.ubridge.op_rows import row_of
from ubridge.models import Model, Tokenizer
from uhal import Device

FOLDER = Path(__file__).resolve().parents[4] / "shared" / "data" / "stories260K"
pytestmark = [
    pytest.mark.skipif(not FOLDER.is_dir(), reason=f"the published model is not there: {FOLDER}"),
    pytest.mark.filterwarnings("ignore:.* matrices (became|stayed)"),
]

DEVICES = ("host", "cuda-sim", "rocm-sim", "tops-sim", "opencl")
TEXT = (
    "Once upon a time, there was a little girl named Lily. She loved to play outside in the park. "
    "One day, she saw a big, red ball. She wanted to play with it, but it was too high.\n"
    "Lily's mom said, \"Lily, let's go to the park.\" Lily was sad and didn't know what to do. She "
    'said, "I want to play with your ball, but I can\'t find it."\n'
    "Lily was sad and didn't know what to do. She said, \"I'm sorry, Lily. I didn't know what to "
    'do."\n'
    "Lily didn't want to help her mom, so she said, \"I'm sorry, mom. I didn't know what to do.\" "
    "Her mom said, \"Don't worry, Lily. We can help you."
)
"""llama2.c's text at temperature 0, more than 200 tokens."""
FORMS: dict[str, tuple[dict[str, Any], float]] = {
    "f32": ({}, 1e-4),
    "bf16": ({"dtype": "bf16"}, 0.02),
    "q8_0": ({"quantize": "q8_0"}, 0.02),
    "q4_K": ({"quantize": "q4_K"}, 0.1),
}
"""Options of `Model.load`, and the largest relative error of the perplexity against float64."""
Array = npt.NDArray[np.float64]


@cache
def tokens() -> list[int]:
    """Return the text's tokens, the begin token first."""
    return Tokenizer.load(FOLDER).encode(TEXT)


@cache
def expected() -> Array:
    """Return the logits after each token, from LLaMA's equations in float64."""
    config = json.loads((FOLDER / "config.json").read_text())
    with Device(0, backend="host"):
        weights = {
            name.removeprefix("model."): one.to_numpy().astype(np.float64)
            for name, one in ub.load(FOLDER / "model.safetensors").items()
        }
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    width, count = config["hidden_size"] // heads, len(tokens())
    steps = config["rope_theta"] ** (-np.arange(0, width, 2) / width)
    angles = np.outer(np.arange(count), steps)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    hidden = np.triu(np.full((count, count), -np.inf), 1)

    def normed(x: Array, name: str) -> Array:
        scale = np.sqrt((x * x).mean(-1, keepdims=True) + config["rms_norm_eps"])
        return np.asarray(x / scale * weights[f"{name}.weight"])

    def turned(x: Array) -> Array:
        one, other = np.split(x, 2, -1)
        return np.concatenate([one * cos - other * sin, other * cos + one * sin], -1)

    x = weights["embed_tokens.weight"][tokens()]
    for layer in range(config["num_hidden_layers"]):
        own = f"layers.{layer}"
        y = normed(x, f"{own}.input_layernorm")
        q, k, v = (
            (y @ weights[f"{own}.self_attn.{part}_proj.weight"].T).reshape(count, -1, width)
            for part in "qkv"
        )
        group = heads // kv_heads
        k, v = (np.repeat(one, group, 1) for one in (turned(k), v))
        scores = np.einsum("qhd,khd->hqk", turned(q), k) / width**0.5 + hidden
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        joined = np.einsum("hqk,khd->qhd", shares, v).reshape(count, -1)
        x = x + joined @ weights[f"{own}.self_attn.o_proj.weight"].T
        y = normed(x, f"{own}.post_attention_layernorm")
        gate, up = (y @ weights[f"{own}.mlp.{part}_proj.weight"].T for part in ("gate", "up"))
        x = x + (gate / (1 + np.exp(-gate)) * up) @ weights[f"{own}.mlp.down_proj.weight"].T
    return np.asarray(normed(x, "norm") @ weights["embed_tokens.weight"].T)


def perplexity(logits: npt.NDArray[Any]) -> float:
    """Return the text's perplexity; the logits after the last token are not needed."""
    wide = logits[:-1].astype(np.float64)
    best = wide.max(1)
    likely = wide[np.arange(len(wide)), tokens()[1 : len(logits)]] - best
    return float(np.exp((np.log(np.exp(wide - best[:, None]).sum(1)) - likely).mean()))


@pytest.mark.usefixtures("host")
def test_it_says_what_llama2_c_says() -> None:
    model = Model.load(FOLDER)
    generation = model.generate([1], max_tokens=len(tokens()) - 1)
    assert generation.read() == TEXT
    assert len(generation.tokens) >= 200 and generation.tokens == tokens()[1:]
    text = "Lily's 😀漢 <x>\n"
    assert model.tokenizer.decode(model.tokenizer.encode(text)) == text


@pytest.mark.parametrize("name", DEVICES)
def test_its_text_and_perplexity(
    name: str, rng: np.random.Generator, request: pytest.FixtureRequest
) -> None:
    """Test all forms on the host; a short run tests one form on one other device."""
    drawn = random.Random(request.config.stash[SEED]).choice(DEVICES[1:])
    if name not in ("host", drawn) and not SOAK:
        pytest.skip(f"this run draws {drawn}")
    if name != "host":
        request.getfixturevalue("simulated")(name)
    with Device(0, backend=name.removesuffix("-sim")) as device:
        speaks_as_it_should(device, rng)


def speaks_as_it_should(device: Device, rng: np.random.Generator) -> None:
    """Compare the perplexity and a few tokens on a device."""
    row_of(device.backend).require_images()
    # GCUs cannot multiply by blocks.
    names = ["f32", "bf16"] if device.backend == "tops" else list(FORMS)
    if device.backend != "host" and not SOAK:
        names = [str(rng.choice(names))]
    # Simulated devices read few tokens.
    is_whole = device.backend == "host" or SOAK
    read = tokens() if is_whole else tokens()[: int(rng.integers(8, 16))]
    exact = perplexity(expected()[: len(read)])
    for name in names:
        options, most = FORMS[name]
        model = Model.load(FOLDER, device=device, **options)
        found = perplexity(model(read).to_numpy())
        print(f"{name}: perplexity {found:.5f}, in float64 {exact:.5f}")
        # The mean of fewer log-probabilities has a larger error, by the root of the count ratio.
        near = 1 if is_whole else (len(tokens()) / len(read)) ** 0.5
        assert abs(found / exact - 1) <= most * near, name
        # The generated token is the most probable token, or nearly as probable.
        generation = model.generate(read[: len(read) // 2], max_tokens=rounds(6, 40))
        generation.read()
        for place, token in enumerate(generation.tokens, len(read) // 2):
            row = expected()[place - 1]
            assert row[token] >= row.max() - (1e-3 if name == "f32" else 1.0), name
            if token != tokens()[place]:
                break

"""Tiny random models of every architecture, in folders of Hugging Face's form.

They test every code path in seconds, without a download. Each has the files of a downloaded model:
a configuration, weights, a tokenizer and a chat template.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import statistics
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import ubridge as ub
from ubridge.core.fits import require
from ubridge.files.settings import Settings
from ubridge.models import rwkv5
from ubridge.models.architecture import Architecture
from ubridge.models.table import ROWS, architecture_of, spelled_alike
from uhal.dtypes import DTypeLike, as_dtype, f32
from uhal.errors import ArgumentValueError

BEGIN, TURN, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    f"{{{{ '{TURN}' + message['role'] + '\\n' + message['content'] + '{END}\\n' }}}}"
    "{% endfor %}"
    f"{{% if add_generation_prompt %}}{{{{ '{TURN}assistant\\n' }}}}{{% endif %}}"
)
_SIZES = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "vocab_size": 512,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}
_OLD_SIZES = {
    "n_embd": 64,
    "n_inner": 128,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 256,
    "vocab_size": 512,
}
_GROUPED = {**_SIZES, "head_dim": 16}
_SINGLE = {**_SIZES, "num_key_value_heads": 4}

CONFIGS: Mapping[str, Mapping[str, Any]] = {
    **dict.fromkeys(sorted(ROWS), _GROUPED),
    **dict.fromkeys(("llama", "mistral", "qwen2", "starcoder2", "stablelm"), _SIZES),
    "phi": _SINGLE,
    "phi3": _SIZES,
    "gpt_bigcode": _OLD_SIZES,
    "falcon": {key: value for key, value in _SIZES.items() if key != "num_key_value_heads"},
    "chatglm": {
        "hidden_size": 64,
        "ffn_hidden_size": 128,
        "num_layers": 2,
        "padded_vocab_size": 512,
        "num_attention_heads": 4,
        "multi_query_group_num": 2,
        "kv_channels": 16,
        "seq_length": 256,
        "add_qkv_bias": True,
    },
    "gemma2": {**_GROUPED, "query_pre_attn_scalar": 16},
    "mixtral": {**_SIZES, "num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen3_moe": {
        **_GROUPED,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 64,
        "norm_topk_prob": True,
    },
    "rwkv5": {
        "hidden_size": 64,
        "attention_hidden_size": 64,
        "head_size": 16,
        "vocab_size": 512,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "layer_norm_epsilon": 1e-5,
    },
}
"""Contents of `config.json` for a tiny model, by architecture."""


@dataclass(frozen=True)
class Made:
    """Report of the written files."""

    folder: Path
    seed: int
    description: str


def make_model(
    folder: str | os.PathLike[str],
    architecture: str = "llama",
    changes: Mapping[str, Any] | None = None,
    *,
    text: str | None = None,
    dtype: DTypeLike = f32,
    seed: int | None = None,
) -> Made:
    """Write a random model of a row of the table, with a tokenizer trained on `text`.

    `changes` are fields of its `config.json`; the default `text` is documentation of Python's own
    modules. Raises `ArgumentValueError` for an unknown architecture, an impossible configuration,
    and a folder that already holds a model; `ImportError` without the `tokenizers` library.
    """
    target = Path(folder)
    require(
        architecture in CONFIGS,
        f"make_model: expected one of {', '.join(sorted(CONFIGS))}, got {architecture!r}",
    )
    require(
        not (target / "config.json").exists(),
        f"{target}: a model is there already; name another folder",
    )
    config = {"model_type": architecture, **CONFIGS[architecture], **(changes or {})}
    try:
        design, names = _designed(architecture, Settings(target / "config.json", config))
    except ub.InvalidFileError as error:
        raise ArgumentValueError(f"make_model: {error}") from None
    tokenizer = trained(_usual_text() if text is None else text, design.vocabulary)
    end = tokenizer.token_to_id(END)
    config |= {"bos_token_id": tokenizer.token_to_id(BEGIN), "eos_token_id": end}
    number = secrets.randbits(32) if seed is None else seed
    rng, element = np.random.default_rng(number), as_dtype(dtype)
    weights = {
        name: ub.asarray(values).astype(element) for name, values in _weights(design, names, rng)
    }
    target.mkdir(parents=True, exist_ok=True)
    ub.save(target / "model.safetensors", weights, metadata={"format": "pt"})
    tokenizer.save(str(target / "tokenizer.json"))
    told = {"bos_token": BEGIN, "eos_token": END, "chat_template": CHAT_TEMPLATE}
    write_json(target / "tokenizer_config.json", told)
    # Written last, so that an unfinished folder is no model.
    write_json(target / "config.json", config)
    elements = sum(one.size for one in weights.values())
    return Made(
        target, number, f"{architecture} of {elements} parameters in {element}, seed {number}"
    )


def trained(text: str, size: int) -> Any:
    """Return a tokenizer of byte pairs of the `tokenizers` library, of at most `size` tokens.

    Raises `ArgumentValueError` if `size` is less than a token for each byte and three special
    tokens.
    """
    try:
        import tokenizers
    except ImportError as error:
        raise ImportError(
            "tokenizers are trained by the tokenizers library: pip install 'uhal-py[llm]'"
        ) from error
    special = [BEGIN, TURN, END]
    require(
        size >= 256 + len(special),
        f"vocab_size: expected at least {256 + len(special)}, a token for each byte and "
        f"{', '.join(special)}, got {size}",
    )
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=special,
        show_progress=False,
    )
    made.train_from_iterator(text.splitlines(keepends=True), trainer)
    return made


def _designed(architecture: str, config: Settings) -> tuple[Architecture, Mapping[str, str]]:
    """The axes of a model, and the names of its tensors."""
    if architecture == "rwkv5":
        return rwkv5.design_of(spelled_alike(config)), rwkv5.NAMES
    row = ROWS[architecture]
    return architecture_of(architecture, spelled_alike(config, row.defaults)), row.names


def _weights(
    design: Architecture, names: Mapping[str, str], rng: np.random.Generator
) -> Iterator[tuple[str, Any]]:
    """Yield each tensor by its name in safetensors: activations keep their size through layers."""
    for layer, part, shape in design.tensors():
        stem, dot, kind = part.partition(".")
        prefix = names["layer"].format(layer) if layer >= 0 else ""
        name = f"{prefix}{names[stem].split()[0]}{dot}{kind}"
        several = "{}" in name
        for number in range(shape[0] if several else 1):
            values = rng.standard_normal(shape[1:] if several else shape)
            if kind == "bias":
                values *= 0.02
            elif "norm" in stem or stem.endswith("_after"):
                values = values * 0.1 + (0 if design.norm == "rms_plus_one" else 1)
            else:
                values /= np.sqrt(values.shape[-1])
            yield name.format(number), values.astype(np.float32)


def _usual_text() -> str:
    """Prose that comes with every Python."""
    modules = (argparse, statistics, textwrap)
    return "\n".join(Path(str(one.__file__)).read_text("utf-8") for one in modules)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write an object as JSON."""
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", "utf-8")

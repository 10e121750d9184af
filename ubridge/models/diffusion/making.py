"""A tiny random pipeline in the layout of diffusers, to try everything without a download."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import ubridge as ub
from ubridge.core.fits import require
from ubridge.files.settings import Settings
from ubridge.models.diffusion.design import CROSS, PLAIN
from ubridge.models.diffusion.loading import PARTS, wanted_of
from ubridge.models.making import Made, write_json
from ubridge.models.tokenizers.byte_pairs import WRITTEN
from uhal.dtypes import DTypeLike, as_dtype, f32

_TEXT = {
    **{"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2},
    **{"num_attention_heads": 4, "max_position_embeddings": 77, "hidden_act": "quick_gelu"},
}
_UNET = {
    **{"block_out_channels": [32, 64], "attention_head_dim": 4, "layers_per_block": 1},
    **{"cross_attention_dim": 32, "norm_num_groups": 8, "in_channels": 4, "out_channels": 4},
    **{"down_block_types": [CROSS[0], PLAIN[0]], "up_block_types": [PLAIN[1], CROSS[1]]},
    "sample_size": 8,
}
_VAE = {
    **{"block_out_channels": [16, 32, 32, 32], "layers_per_block": 1, "latent_channels": 4},
    **{"norm_num_groups": 8, "scaling_factor": 0.18215, "sample_size": 64},
    **{"down_block_types": ["DownEncoderBlock2D"] * 4, "up_block_types": ["UpDecoderBlock2D"] * 4},
}
_SCHEDULER = {"prediction_type": "epsilon", "steps_offset": 1, "set_alpha_to_one": False}


def make_pipeline(folder: Path, *, dtype: DTypeLike = f32, seed: int | None = None) -> Made:
    """Write a random pipeline, with a tokenizer of single bytes.

    Raises `ArgumentValueError` for a folder that already holds a model.
    """
    require(
        not (folder / "model_index.json").exists(),
        f"{folder}: a model is there already; name another folder",
    )
    number = secrets.randbits(32) if seed is None else seed
    rng, element = np.random.default_rng(number), as_dtype(dtype)
    signs = list(WRITTEN.values())
    words = [*signs, *(f"{sign}</w>" for sign in signs), "<|startoftext|>", "<|endoftext|>"]
    configs = {"text_encoder": {**_TEXT, "vocab_size": len(words)}, "unet": _UNET, "vae": _VAE}
    count = 0
    for part in (*PARTS, "scheduler", "tokenizer"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    for part, config in configs.items():
        design = PARTS[part].design.read(Settings(part, config))
        weights = {name: one.astype(element.dtype) for name, one in drawn(part, design, rng)}
        file = folder / part / f"{PARTS[part].stem}.safetensors"
        ub.save(file, weights, metadata={"format": "pt"})
        write_json(folder / part / "config.json", config)
        count += sum(one.size for one in weights.values())
    write_json(folder / "scheduler" / "scheduler_config.json", _SCHEDULER)
    write_json(folder / "tokenizer" / "vocab.json", {text: one for one, text in enumerate(words)})
    (folder / "tokenizer" / "merges.txt").write_text("#version: 0.2\n", "utf-8")
    # Written last, so that an unfinished folder is no model.
    write_json(folder / "model_index.json", {"_class_name": "StableDiffusionPipeline"})
    return Made(
        folder, number, f"stable-diffusion of {count} parameters in {element}, seed {number}"
    )


def drawn(
    part: str, design: Any, rng: np.random.Generator
) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """Yield random weights of a network by their names; activations keep their size."""
    for name, shape in wanted_of(part, design).items():
        values = rng.standard_normal(shape)
        if name.endswith("bias"):
            values *= 0.02
        elif len(shape) == 1:
            values = 1 + 0.1 * values
        else:
            values /= np.sqrt(np.prod(shape[1:]))
        yield name, values

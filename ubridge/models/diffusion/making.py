"""A tiny random pipeline in the layout of diffusers, to try everything without a download."""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

import ubridge as ub
from ubridge.core.fits import require
from ubridge.files.settings import Settings
from ubridge.models.diffusion.design import CROSS, PLAIN, TextDesign, UNetDesign, VaeDesign
from ubridge.models.diffusion.layers import Tensor, Weight
from ubridge.models.diffusion.loading import PARTS
from ubridge.models.diffusion.text_encoder import TextEncoder
from ubridge.models.diffusion.unet import UNet
from ubridge.models.diffusion.vae import Vae
from ubridge.models.making import Made
from ubridge.models.tokenizers.byte_pairs import WRITTEN
from uhal.dtypes import DTypeLike, as_dtype, f32

_ATTENDS, _LEVELS = (True, False), 4
_TEXT = {
    **{"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2},
    **{"num_attention_heads": 4, "max_position_embeddings": 77, "hidden_act": "quick_gelu"},
}
_UNET = {
    **{"block_out_channels": [32, 64], "attention_head_dim": 4, "layers_per_block": 1},
    **{"cross_attention_dim": 32, "norm_num_groups": 8, "in_channels": 4, "out_channels": 4},
    "down_block_types": [(CROSS if one else PLAIN)[0] for one in _ATTENDS],
    "up_block_types": [(CROSS if one else PLAIN)[1] for one in reversed(_ATTENDS)],
    "sample_size": 8,
}
_VAE = {
    **{"block_out_channels": [16, 32, 32, 32], "layers_per_block": 1, "latent_channels": 4},
    **{"norm_num_groups": 8, "scaling_factor": 0.18215, "sample_size": 64},
    "down_block_types": ["DownEncoderBlock2D"] * _LEVELS,
    "up_block_types": ["UpDecoderBlock2D"] * _LEVELS,
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
    for part, stem in PARTS.items():
        take = Draw(rng, element.dtype)
        settings = Settings(part, configs[part])
        if part == "text_encoder":
            TextEncoder(TextDesign.read(settings), take)
        elif part == "unet":
            UNet(UNetDesign.read(settings), take)
        else:
            Vae(VaeDesign.read(settings), take)
        (folder / part).mkdir(parents=True, exist_ok=True)
        ub.save(folder / part / f"{stem}.safetensors", take.drawn, metadata={"format": "pt"})
        _write(folder / part / "config.json", configs[part])
        count += sum(one.size for one in take.drawn.values())
    for part in ("scheduler", "tokenizer"):
        (folder / part).mkdir(exist_ok=True)
    _write(folder / "scheduler" / "scheduler_config.json", _SCHEDULER)
    _write(folder / "tokenizer" / "vocab.json", {text: one for one, text in enumerate(words)})
    (folder / "tokenizer" / "merges.txt").write_text("#version: 0.2\n", "utf-8")
    # Written last, so that an unfinished folder is no model.
    _write(folder / "model_index.json", {"_class_name": "StableDiffusionPipeline"})
    return Made(
        folder, number, f"stable-diffusion of {count} parameters in {element}, seed {number}"
    )


class Draw:
    """Draws each tensor that a network asks for; activations keep their size."""

    def __init__(self, rng: np.random.Generator, dtype: npt.DTypeLike) -> None:
        self.drawn: dict[str, npt.NDArray[Any]] = {}
        self._rng, self._dtype = rng, dtype

    def __call__(self, name: str, *shape: int) -> Tensor:
        """Draw a tensor; nothing is returned, as the network does not run."""
        values = self._rng.standard_normal(shape)
        if name.endswith("bias"):
            values *= 0.02
        elif len(shape) == 1:
            values = 1 + 0.1 * values
        else:
            values /= np.sqrt(np.prod(shape[1:]))
        self.drawn[name] = values.astype(self._dtype)
        return cast(Tensor, None)

    def matrix(self, name: str, rows: int, columns: int) -> Weight:
        """Draw a matrix."""
        return self(name, rows, columns)


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", "utf-8")

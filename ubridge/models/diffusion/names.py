"""Names of tensors in single checkpoints, from their names in diffusers.

Checkpoints of CompVis and Stability AI number all blocks of the UNet in one sequence. Checkpoints
of Stable Diffusion 2 use OpenCLIP's names for the text encoder.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ubridge.models.diffusion.design import UNetDesign, Version


class Spelling(NamedTuple):
    """A tensor of a file, or a third of it: queries, keys or values."""

    name: str
    third: int | None = None


Spell = Callable[[str], list[Spelling]]
"""Returns the possible spellings of a name in diffusers, the best first."""

_RESNET = {
    "norm1": "in_layers.0",
    "conv1": "in_layers.2",
    "time_emb_proj": "emb_layers.1",
    "norm2": "out_layers.0",
    "conv2": "out_layers.3",
    "conv_shortcut": "skip_connection",
}
_UNET = {
    "conv_in": "input_blocks.0.0",
    "time_embedding.linear_1": "time_embed.0",
    "time_embedding.linear_2": "time_embed.2",
    "conv_norm_out": "out.0",
    "conv_out": "out.2",
    "mid_block.resnets.0": "middle_block.0",
    "mid_block.attentions.0": "middle_block.1",
    "mid_block.resnets.1": "middle_block.2",
}
_VAE = {
    "mid_block.resnets.0": "mid.block_1",
    "mid_block.attentions.0": "mid.attn_1",
    "mid_block.resnets.1": "mid.block_2",
    "conv_norm_out": "norm_out",
    "conv_shortcut": "nin_shortcut",
    "group_norm": "norm",
    "to_out.0": "proj_out",
    "to_q": "q",
    "to_k": "k",
    "to_v": "v",
}
_OLD_VAE = {"to_q": "query", "to_k": "key", "to_v": "value", "to_out.0": "proj_attn"}
_CLIP = {
    "embeddings.token_embedding": "token_embedding",
    "embeddings.position_embedding.weight": "positional_embedding",
    "final_layer_norm": "ln_final",
    "encoder.layers": "transformer.resblocks",
    "layer_norm1": "ln_1",
    "layer_norm2": "ln_2",
    "self_attn.out_proj": "attn.out_proj",
    "mlp.fc1": "mlp.c_fc",
    "mlp.fc2": "mlp.c_proj",
}
_THIRD = re.compile(r"self_attn\.([qkv])_proj\.(weight|bias)")
_BLOCK = re.compile(r"(down|up)_blocks\.(\d+)\.(resnets|attentions|downsamplers|upsamplers)\.(\d+)")


def _replaced(name: str, words: Mapping[str, str]) -> str:
    """A name with whole parts of it replaced."""
    for word, other in words.items():
        name = re.sub(rf"(?<![^.]){re.escape(word)}(?![^.])", other, name)
    return name


def of_folder(part: str) -> Spell:
    """Return the spellings in a folder of diffusers, in today's and in older files."""
    if part == "text_encoder":
        return lambda name: [Spelling(f"text_model.{name}"), Spelling(name)]
    return lambda name: [Spelling(name), Spelling(_replaced(name, _OLD_VAE))]


def of_checkpoint(part: str, version: Version) -> Spell:
    """Return the spellings in a single checkpoint."""
    if part == "text_encoder":
        return _of_text
    if part == "vae":
        last = len(version.vae.channels) - 1
        return lambda name: [Spelling(f"first_stage_model.{_of_vae(name, last)}")]
    return lambda name: [Spelling(f"model.diffusion_model.{_of_unet(name, version.unet)}")]


def _of_text(name: str) -> list[Spelling]:
    own = _replaced(_THIRD.sub(r"attn.in_proj_\2", name), _CLIP)
    third = _THIRD.search(name)
    return [
        Spelling(f"cond_stage_model.transformer.text_model.{name}"),
        Spelling(f"cond_stage_model.transformer.{name}"),
        Spelling(f"cond_stage_model.model.{own}", third and "qkv".index(third[1])),
    ]


def _of_vae(name: str, last: int) -> str:
    def block(match: re.Match[str]) -> str:
        way, kind = match[1], match[3]
        level = int(match[2]) if way == "down" else last - int(match[2])
        return f"{way}.{level}." + (f"block.{match[4]}" if kind == "resnets" else f"{way}sample")

    return _replaced(_BLOCK.sub(block, name), _VAE)


def _of_unet(name: str, design: UNetDesign) -> str:
    def block(match: re.Match[str]) -> str:
        way, level, kind, number = match[1], int(match[2]), match[3], int(match[4])
        # A block that changes the size is the last of its level.
        at = (design.layers + 1) * level + (design.layers if "samplers" in kind else number)
        if way == "down":
            return f"input_blocks.{1 + at}.{int(kind == 'attentions')}"
        inner = {"resnets": 0, "attentions": 1, "upsamplers": 1 + design.attends[-1 - level]}[kind]
        return f"output_blocks.{at}.{inner}"

    words = {**_UNET, **(_RESNET if "resnets" in name else {})}
    return _replaced(_BLOCK.sub(block, name), words | ({"conv": "op"} if "down" in name else {}))

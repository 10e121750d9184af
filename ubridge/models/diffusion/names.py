"""Names of tensors in single checkpoints, from their names in diffusers.

Checkpoints of CompVis and Stability AI number all blocks of the UNet in one sequence. For Stable
Diffusion 2 they use OpenCLIP's names of the text encoder.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ubridge.models.diffusion.versions import Version


@dataclass(frozen=True)
class Spelling:
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
_UNET_ENDS = {
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
_CLIP_ENDS = {
    "embeddings.token_embedding.weight": "token_embedding.weight",
    "embeddings.position_embedding.weight": "positional_embedding",
    "final_layer_norm": "ln_final",
}
_CLIP_LAYER = {
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
    if part == "vae":
        return lambda name: [Spelling(name), Spelling(_replaced(name, _OLD_VAE))]
    return lambda name: [Spelling(name)]


def of_checkpoint(part: str, version: Version) -> Spell:
    """Return the spellings in a single checkpoint."""
    if part == "text_encoder":
        return _of_text
    if part == "vae":
        last = len(version.vae.channels) - 1
        return lambda name: [Spelling(f"first_stage_model.{_of_vae(name, last)}")]
    layers, attends = version.unet.layers, version.unet.attends
    return lambda name: [Spelling(f"model.diffusion_model.{_of_unet(name, layers, attends)}")]


def _of_text(name: str) -> list[Spelling]:
    stem = "cond_stage_model"
    third = _THIRD.search(name)
    own = name
    if third is not None:
        own = f"{name[: third.start()]}attn.in_proj_{third[2]}"
    own = _replaced(_replaced(own, _CLIP_LAYER), _CLIP_ENDS)
    number = None if third is None else "qkv".index(third[1])
    return [
        Spelling(f"{stem}.transformer.text_model.{name}"),
        Spelling(f"{stem}.transformer.{name}"),
        Spelling(f"{stem}.model.{own}", number),
    ]


def _of_vae(name: str, last: int) -> str:
    def block(match: re.Match[str]) -> str:
        way, level, kind, number = match[1], int(match[2]), match[3], match[4]
        at = f"{way}.{level if way == 'down' else last - level}"
        return f"{at}.block.{number}" if kind == "resnets" else f"{at}.{way}sample"

    return _replaced(_BLOCK.sub(block, name), _VAE)


def _of_unet(name: str, layers: int, attends: tuple[bool, ...]) -> str:
    def block(match: re.Match[str]) -> str:
        way, level, kind, number = match[1], int(match[2]), match[3], int(match[4])
        per_level = layers + 1
        if way == "down":
            if kind == "downsamplers":
                return f"input_blocks.{per_level * (level + 1)}.0"
            return f"input_blocks.{1 + per_level * level + number}.{int(kind == 'attentions')}"
        if kind == "upsamplers":
            at = 1 + attends[len(attends) - 1 - level]
            return f"output_blocks.{per_level * (level + 1) - 1}.{at}"
        return f"output_blocks.{per_level * level + number}.{int(kind == 'attentions')}"

    found = _BLOCK.sub(block, name)
    if "downsamplers" in name:
        found = found.replace(".conv.", ".op.")
    return _replaced(_replaced(found, _UNET_ENDS), _RESNET if "resnets" in name else {})

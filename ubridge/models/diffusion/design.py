"""Sizes of the networks, for published models and for a folder in the layout of diffusers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ubridge.files.settings import Settings
from ubridge.models.diffusion.schedule import Training
from uhal.errors import NotSupportedError

CROSS, PLAIN = ("CrossAttnDownBlock2D", "CrossAttnUpBlock2D"), ("DownBlock2D", "UpBlock2D")
"""Kinds of the UNet's blocks, down and up, with attention and without."""
_OTHERS = (
    *("addition_embed_type", "class_embed_type", "encoder_hid_dim_type", "time_cond_proj_dim"),
    *("dual_cross_attention", "only_cross_attention", "center_input_sample", "num_attention_heads"),
    *("mid_block_only_cross_attention", "reverse_transformer_layers_per_block"),
)
"""Settings of other models' UNets, all of which are off in Stable Diffusion 1 and 2."""


@dataclass(frozen=True)
class TextDesign:
    """A CLIP text encoder. E in shapes is `hidden`."""

    hidden: int = 768
    inner: int = 3072
    layers: int = 12
    heads: int = 12
    activation: str = "quick_gelu"
    vocabulary: int = 49408
    positions: int = 77
    epsilon: float = 1e-5

    @classmethod
    def read(cls, config: Settings) -> TextDesign:
        """Return the sizes in a `config.json`. Raises `InvalidFileError`."""
        found = cls(
            config.integer("hidden_size", least=1),
            config.integer("intermediate_size", least=1),
            config.integer("num_hidden_layers", least=1),
            config.integer("num_attention_heads", least=1),
            config.text("hidden_act", "quick_gelu", ("quick_gelu", "gelu")),
            config.integer("vocab_size", least=1),
            config.integer("max_position_embeddings", least=2),
            config.number("layer_norm_eps", 1e-5, above=0, most=1),
        )
        if found.hidden % found.heads:
            raise config.refuse("num_attention_heads", f"a divisor of hidden_size {found.hidden}")
        return found


def _channels(config: Settings) -> tuple[int, ...]:
    """Channels of the levels of a network, which has at least one."""
    channels = config.integers("block_out_channels", least=1)
    if not channels:
        raise config.refuse("block_out_channels", "at least one number")
    return channels


@dataclass(frozen=True)
class UNetDesign:
    """The network that is run for each step."""

    channels: tuple[int, ...] = (320, 640, 1280, 1280)
    """Channels of the levels, finest first."""
    attends: tuple[bool, ...] = (True, True, True, False)
    """Levels with attention."""
    heads: tuple[int, ...] = (8, 8, 8, 8)
    layers: int = 2
    """Residual blocks of a level on the way down; there is one more on the way up."""
    context: int = 768
    """Elements of a text's token."""
    latent: int = 4
    groups: int = 32
    epsilon: float = 1e-5

    @property
    def time(self) -> int:
        """Elements of a time's embedding."""
        return 4 * self.channels[0]

    @classmethod
    def read(cls, config: Settings) -> UNetDesign:
        """Return the sizes in a `config.json`.

        Raises `InvalidFileError`, and `NotSupportedError` for UNets of other models.
        """
        for name in _OTHERS:
            if config.value(name):
                raise NotSupportedError(
                    f"{config.where}: {name}: expected none, got {config.value(name)!r:.40}: this "
                    "is no UNet of Stable Diffusion 1 or 2"
                )
        channels = _channels(config)
        heads = config.one_or_more("attention_head_dim", (8,), 1)
        latent = config.integer("in_channels", 4, 1)
        if config.integer("out_channels", latent, 1) != latent:
            raise NotSupportedError(
                f"{config.where}: expected out_channels equal to in_channels, got {latent} in: "
                "models that fill holes or follow pictures are not supported"
            )
        config.text("act_fn", "silu", ("silu",))
        config.ignore("use_linear_projection", "upcast_attention", "sample_size")
        found = cls(
            channels,
            _attends(config, len(channels)),
            heads * len(channels) if len(heads) == 1 else heads,
            config.integer("layers_per_block", 2, 1),
            config.integer("cross_attention_dim", least=1),
            latent,
            config.integer("norm_num_groups", 32, 1),
            config.number("norm_eps", 1e-5, above=0, most=1),
        )
        if len(found.heads) != len(channels):
            raise config.refuse("attention_head_dim", f"{len(channels)} numbers")
        for width, one in zip(channels, found.heads, strict=True):
            if width % one or width % found.groups:
                raise config.refuse(
                    "block_out_channels",
                    f"multiples of the heads {list(heads)} and of {found.groups} groups",
                )
        return found


def _attends(config: Settings, levels: int) -> tuple[bool, ...]:
    """Levels with attention, on the way down; on the way up they must be the same."""
    down = config.texts("down_block_types", among=(CROSS[0], PLAIN[0]))
    up = config.texts("up_block_types", among=(CROSS[1], PLAIN[1]))
    attends = tuple(kind == CROSS[0] for kind in down)
    if len(down) != levels:
        raise config.refuse("down_block_types", f"{levels} blocks")
    if tuple(kind == CROSS[1] for kind in reversed(up)) != attends:
        raise config.refuse("up_block_types", "the kinds of down_block_types in reverse")
    config.text("mid_block_type", "UNetMidBlock2DCrossAttn", ("UNetMidBlock2DCrossAttn",))
    return attends


@dataclass(frozen=True)
class VaeDesign:
    """The network between pictures and latents."""

    channels: tuple[int, ...] = (128, 256, 512, 512)
    layers: int = 2
    latent: int = 4
    groups: int = 32
    scale: float = 0.18215
    """Factor of latents in the UNet."""
    tile: int = 512
    """Rows and columns of a tile of larger pictures."""
    epsilon: float = 1e-6
    time: int = 0
    """No time is given to this network."""

    @property
    def factor(self) -> int:
        """A picture has this many times the rows, and the columns, of its latent."""
        return 1 << (len(self.channels) - 1)

    @classmethod
    def read(cls, config: Settings) -> VaeDesign:
        """Return the sizes in a `config.json`. Raises as `UNetDesign.read` does."""
        config.texts("down_block_types", (), ("DownEncoderBlock2D",))
        config.texts("up_block_types", (), ("UpDecoderBlock2D",))
        config.text("act_fn", "silu", ("silu",))
        for name in ("use_quant_conv", "use_post_quant_conv", "mid_block_add_attention"):
            if not config.flag(name, True):
                raise NotSupportedError(f"{config.where}: {name}: expected true, got false")
        found = cls(
            _channels(config),
            config.integer("layers_per_block", 2, 1),
            config.integer("latent_channels", 4, 1),
            config.integer("norm_num_groups", 32, 1),
            config.number("scaling_factor", 0.18215, above=0),
            config.integer("sample_size", 512, 1),
        )
        if any(width % found.groups for width in found.channels):
            raise config.refuse("block_out_channels", f"multiples of {found.groups} groups")
        if found.tile % (4 * found.factor):
            raise config.refuse("sample_size", f"a multiple of {4 * found.factor}")
        return found


@dataclass(frozen=True)
class Version:
    """The networks of a model and the way it was trained."""

    name: str
    text_encoder: TextDesign
    unet: UNetDesign
    vae: VaeDesign
    training: Training
    size: int = 512
    """Usual rows and columns of a picture."""
    pad: str | None = None
    """Token behind short prompts; None for the token that ends a text."""


_V1 = Version("v1-5", TextDesign(), UNetDesign(), VaeDesign(), Training())
_V2 = Version(
    "v2-base",
    TextDesign(hidden=1024, inner=4096, layers=23, heads=16, activation="gelu"),
    UNetDesign(heads=(5, 10, 20, 20), context=1024),
    VaeDesign(),
    Training(),
    pad="!",
)
VERSIONS: Mapping[str, Version] = {
    "v1-5": _V1,
    "v2-base": _V2,
    "v2-1": replace(
        _V2,
        name="v2-1",
        vae=VaeDesign(tile=768),
        training=Training(prediction="v_prediction"),
        size=768,
    ),
}
"""Models by the names of `--sd-version`; `v1-5` is every Stable Diffusion 1.x."""

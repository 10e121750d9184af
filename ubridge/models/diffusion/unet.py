"""The UNet: noise of latents, from the latents, the time and the text.

Ronneberger, Fischer and Brox, "U-Net" (2015); Rombach et al., "High-Resolution Image Synthesis with
Latent Diffusion Models" (2022).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

import ubridge as ub
from ubridge.models.diffusion.design import UNetDesign
from ubridge.models.diffusion.layers import (
    Attention,
    Conv,
    GroupNorm,
    LayerNorm,
    Linear,
    Resnet,
    Take,
    Tensor,
    Upsample,
)

_SLOWEST = 10000.0


class UNet:
    """The network of a step. Any thread may use it."""

    def __init__(self, design: UNetDesign, take: Take) -> None:
        """Take the weights by their names in diffusers."""
        self.design = design
        channels, last = design.channels, len(design.channels) - 1
        self._conv_in = Conv(take, "conv_in", design.latent, channels[0])
        self._time1 = Linear(take, "time_embedding.linear_1", channels[0], design.time)
        self._time2 = Linear(take, "time_embedding.linear_2", design.time, design.time)
        self._down = []
        skips, width = [channels[0]], channels[0]
        for level, outer in enumerate(channels):
            inputs = [width] + [outer] * (design.layers - 1)
            self._down.append(_Level(design, take, f"down_blocks.{level}", level, inputs))
            skips += [outer] * design.layers
            width = outer
            if level < last:
                name = f"down_blocks.{level}.downsamplers.0.conv"
                self._down[-1].resize = Conv(take, name, outer, outer, stride=2)
                skips.append(outer)
        self._mid = [
            _resnet(design, take, f"mid_block.resnets.{one}", width, width) for one in range(2)
        ]
        self._mid_attention = _Transformer(design, take, "mid_block.attentions.0", last)
        self._up = []
        for number, level in enumerate(reversed(range(len(channels)))):
            outer, inputs = channels[level], []
            for _ in range(design.layers + 1):
                inputs.append(width + skips.pop())
                width = outer
            self._up.append(_Level(design, take, f"up_blocks.{number}", level, inputs))
            if level:
                self._up[-1].grow = Upsample(take, f"up_blocks.{number}.upsamplers.0", outer)
        self._norm_out = GroupNorm(take, "conv_norm_out", width, design.groups, design.epsilon)
        self._conv_out = Conv(take, "conv_out", width, design.latent)

    def __call__(self, x: Tensor, time: Tensor, context: Tensor) -> Tensor:
        """Return the prediction for (batch, channels, rows, columns).

        `time` is a row of `times`, (1, channels) or one for each of the batch; `context` is (batch,
        tokens, elements), from the text encoder.
        """
        emb = ub.silu(self._time2(ub.silu(self._time1(time))))
        x = self._conv_in(x)
        skips = [x]
        for level in self._down:
            for layer in range(len(level.resnets)):
                x = level(layer, x, emb, context)
                skips.append(x)
            if level.resize is not None:
                x = level.resize(x)
                skips.append(x)
        x = self._mid[0](x, emb)
        x = self._mid[1](self._mid_attention(x, context), emb)
        for level in self._up:
            for layer in range(len(level.resnets)):
                x = level(layer, ub.concatenate([x, skips.pop()], 1), emb, context)
            if level.grow is not None:
                # Odd sizes were rounded up on the way down.
                x = level.grow(x, *skips[-1].shape[2:])
        return self._conv_out(ub.silu(self._norm_out(x)))

    def times(self, times: Sequence[float]) -> npt.NDArray[np.float32]:
        """Return the network's form of times of training: cosines, then sines, (times, channels).

        Vaswani et al., "Attention Is All You Need" (2017), section 3.5; computed in f32 as in
        diffusers.
        """
        half = self.design.channels[0] // 2
        turns = np.exp(np.arange(half, dtype=np.float32) * np.float32(-np.log(_SLOWEST)) / half)
        angles = np.asarray(times, np.float32)[:, None] * turns
        return np.concatenate([np.cos(angles), np.sin(angles)], 1)


class _Level:
    """Residual blocks of one resolution, each perhaps with attention."""

    def __init__(
        self, design: UNetDesign, take: Take, name: str, level: int, inputs: Sequence[int]
    ) -> None:
        outer = design.channels[level]
        self.resnets = [
            _resnet(design, take, f"{name}.resnets.{layer}", inner, outer)
            for layer, inner in enumerate(inputs)
        ]
        self.attentions = [
            _Transformer(design, take, f"{name}.attentions.{layer}", level)
            for layer in range(len(inputs) if design.attends[level] else 0)
        ]
        self.resize: Conv | None = None
        self.grow: Upsample | None = None

    def __call__(self, layer: int, x: Tensor, emb: Tensor, context: Tensor) -> Tensor:
        x = self.resnets[layer](x, emb)
        return self.attentions[layer](x, context) if self.attentions else x


def _resnet(design: UNetDesign, take: Take, name: str, inner: int, outer: int) -> Resnet:
    return Resnet(take, name, inner, outer, design.groups, epsilon=design.epsilon, time=design.time)


class _Transformer:
    """Attention of positions to each other and to the text, and an MLP."""

    def __init__(self, design: UNetDesign, take: Take, name: str, level: int) -> None:
        width, heads = design.channels[level], design.heads[level]
        block = f"{name}.transformer_blocks.0"
        self._norm = GroupNorm(take, f"{name}.norm", width, design.groups, 1e-6)
        self._proj_in = Linear(take, f"{name}.proj_in", width, width)
        self._norms = [LayerNorm(take, f"{block}.norm{one}", width) for one in (1, 2, 3)]
        self._own = Attention(take, f"{block}.attn1", width, heads)
        self._cross = Attention(take, f"{block}.attn2", width, heads, context=design.context)
        self._up = Linear(take, f"{block}.ff.net.0.proj", width, 8 * width)
        self._down = Linear(take, f"{block}.ff.net.2", 4 * width, width)
        self._proj_out = Linear(take, f"{name}.proj_out", width, width)
        self._inner = 4 * width

    def __call__(self, x: Tensor, context: Tensor) -> Tensor:
        tokens = self._proj_in(self._norm(x).reshape(*x.shape[:2], -1).mT)
        tokens = tokens + self._own(self._norms[0](tokens))
        tokens = tokens + self._cross(self._norms[1](tokens), context)
        both = self._up(self._norms[2](tokens))
        inner = both[..., : self._inner] * ub.gelu_erf(both[..., self._inner :])
        tokens = self._proj_out(tokens + self._down(inner))
        return tokens.mT.reshape(x.shape) + x

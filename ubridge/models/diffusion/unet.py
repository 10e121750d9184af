"""The UNet: noise of latents, from the latents, the time and the text.

Ronneberger, Fischer and Brox, "U-Net" (2015); Rombach et al., "High-Resolution Image Synthesis with
Latent Diffusion Models" (2022).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

import ubridge as ub
from ubridge.models.diffusion import layers as nn
from ubridge.models.diffusion.design import UNetDesign
from ubridge.models.diffusion.layers import Layer, Take, Tensor

_SLOWEST = 10000.0


class UNet:
    """The network of a step. Any thread may use it."""

    def __init__(self, design: UNetDesign, take: Take) -> None:
        """Take the weights by their names in diffusers."""
        self.design = design
        channels, last = design.channels, len(design.channels) - 1
        self._conv_in = nn.conv(take / "conv_in", design.latent, channels[0])
        self._time1 = nn.linear(take / "time_embedding.linear_1", channels[0], design.time)
        self._time2 = nn.linear(take / "time_embedding.linear_2", design.time, design.time)
        self._down = []
        skips, width = [channels[0]], channels[0]
        for level, outer in enumerate(channels):
            at = take / f"down_blocks.{level}"
            for layer in range(design.layers):
                self._down.append(_block(design, at, level, layer, width))
                width = outer
                skips.append(width)
            if level < last:
                self._down.append(_resize(at / "downsamplers.0.conv", width))
                skips.append(width)
        at = take / "mid_block"
        self._middle = _block(design, at, last, 0, width, attends=True)
        self._after = nn.resnet(at / "resnets.1", design, width, width)
        self._up = []
        for number, level in enumerate(reversed(range(len(channels)))):
            at, blocks = take / f"up_blocks.{number}", []
            for layer in range(design.layers + 1):
                blocks.append(_block(design, at, level, layer, width + skips.pop()))
                width = channels[level]
            grow = nn.upsample(at / "upsamplers.0", width) if level else None
            self._up.append((blocks, grow))
        self._head = nn.head(take, design, width, design.latent)

    def __call__(self, x: Tensor, time: Tensor, context: Tensor) -> Tensor:
        """Return the prediction for (batch, channels, rows, columns).

        `time` is a row of `times`, (1, channels) or one for each of the batch; `context` is (batch,
        tokens, elements), from the text encoder.
        """
        emb = ub.silu(self._time2(ub.silu(self._time1(time))))
        skips = [self._conv_in(x)]
        for layer in self._down:
            skips.append(layer(skips[-1], emb, context))
        x = self._after(self._middle(skips[-1], emb, context), emb)
        for blocks, grow in self._up:
            for block in blocks:
                x = block(ub.concatenate([x, skips.pop()], 1), emb, context)
            if grow is not None:
                # Odd sizes were rounded up on the way down.
                x = grow(x, *skips[-1].shape[2:])
        return self._head(x)

    def times(self, times: Sequence[float]) -> npt.NDArray[np.float32]:
        """Return the network's form of times of training: cosines, then sines, (times, channels).

        Vaswani et al., "Attention Is All You Need" (2017), section 3.5; computed in f32 as in
        diffusers.
        """
        half = self.design.channels[0] // 2
        turns = np.exp(np.arange(half, dtype=np.float32) * np.float32(-np.log(_SLOWEST)) / half)
        angles = np.asarray(times, np.float32)[:, None] * turns
        return np.concatenate([np.cos(angles), np.sin(angles)], 1)


def _block(
    design: UNetDesign, take: Take, level: int, layer: int, inner: int, *, attends: bool = False
) -> Layer:
    """A residual block of a level, perhaps with attention."""
    first = nn.resnet(take / f"resnets.{layer}", design, inner, design.channels[level])
    if not (attends or design.attends[level]):
        return lambda x, emb, context: first(x, emb)
    second = _transformer(design, take / f"attentions.{layer}", level)
    return lambda x, emb, context: second(first(x, emb), context)


def _resize(take: Take, width: int) -> Layer:
    """A convolution to half the rows and columns."""
    product = nn.conv(take, width, width, stride=2)
    return lambda x, emb, context: product(x)


def _transformer(design: UNetDesign, take: Take, level: int) -> Layer:
    """Attention of positions to each other and to the text, and an MLP."""
    width, heads = design.channels[level], design.heads[level]
    block = take / "transformer_blocks.0"
    norm = nn.group_norm(take / "norm", width, design.groups, 1e-6)
    first, last = (nn.linear(take / f"proj_{one}", width, width) for one in ("in", "out"))
    norm1, norm2, norm3 = (nn.layer_norm(block / f"norm{one}", width) for one in (1, 2, 3))
    own = nn.attention(block / "attn1", width, heads)
    cross = nn.attention(block / "attn2", width, heads, design.context)
    up = nn.linear(block / "ff.net.0.proj", width, 8 * width)
    down = nn.linear(block / "ff.net.2", 4 * width, width)

    def run(x: Tensor, context: Tensor) -> Tensor:
        tokens = first(norm(x).reshape(*x.shape[:2], -1).mT)
        tokens = tokens + own(norm1(tokens))
        tokens = tokens + cross(norm2(tokens), context)
        inner, gate = ub.split(up(norm3(tokens)), 2, -1)
        tokens = last(tokens + down(inner * ub.gelu_erf(gate)))
        return tokens.mT.reshape(x.shape) + x

    return run

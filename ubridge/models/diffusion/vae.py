"""The variational autoencoder: pictures to latents and back, in tiles if they are large.

Kingma and Welling, "Auto-Encoding Variational Bayes" (2014). Pictures are (batch, 3, rows, columns)
from -1 to 1.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import ubridge as ub
from ubridge.models.diffusion.design import VaeDesign
from ubridge.models.diffusion.layers import (
    Attention,
    Conv,
    GroupNorm,
    Resnet,
    Take,
    Tensor,
    Upsample,
)

_EPSILON = 1e-6
_LOG_VARIANCE = (-30.0, 20.0)
_COLORS = 3


class Vae:
    """Encoder and decoder. Any thread may use it.

    Pictures of more than two tiles' rows or columns go through it tile by tile. A quarter of each
    tile is blended with its neighbour.
    """

    def __init__(self, design: VaeDesign, take: Take) -> None:
        """Take the weights by their names in diffusers."""
        self.design = design
        self._encoder = _Encoder(design, take)
        self._decoder = _Decoder(design, take)
        self._quant = Conv(take, "quant_conv", 2 * design.latent, 2 * design.latent, 1)
        self._post_quant = Conv(take, "post_quant_conv", design.latent, design.latent, 1)

    def encode(self, pictures: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and standard deviation of latents, which are not scaled.

        Rows and columns of pictures are multiples of `design.factor`.
        """
        tile = self.design.tile
        moments = _tiled(self._encoded, pictures, tile, tile // self.design.factor)
        mean, spread = ub.split(moments, 2, 1)
        return mean, ub.exp(ub.clip(spread, *_LOG_VARIANCE) * 0.5)

    def decode(self, latents: Tensor) -> Tensor:
        """Return the pictures of latents, which are not scaled."""
        tile = self.design.tile
        return _tiled(self._decoded, latents, tile // self.design.factor, tile)

    def _encoded(self, pictures: Tensor) -> Tensor:
        return self._quant(self._encoder(pictures))

    def _decoded(self, latents: Tensor) -> Tensor:
        return self._decoder(self._post_quant(latents))


class _Middle:
    """Residual blocks around attention with one head, at the lowest resolution."""

    def __init__(self, design: VaeDesign, take: Take, name: str) -> None:
        width = design.channels[-1]
        self._before = _resnet(design, take, f"{name}.resnets.0", width, width)
        attention = f"{name}.attentions.0"
        self._norm = GroupNorm(take, f"{attention}.group_norm", width, design.groups, _EPSILON)
        self._attention = Attention(take, attention, width, 1, bias=True)
        self._after = _resnet(design, take, f"{name}.resnets.1", width, width)

    def __call__(self, x: Tensor) -> Tensor:
        x = self._before(x)
        tokens = self._attention(self._norm(x).reshape(*x.shape[:2], -1).mT)
        return self._after(x + tokens.mT.reshape(x.shape))


class _Encoder:
    """Pictures to twice the latents' channels."""

    def __init__(self, design: VaeDesign, take: Take) -> None:
        width, last = design.channels[0], len(design.channels) - 1
        self._conv_in = Conv(take, "encoder.conv_in", _COLORS, width)
        self._levels: list[tuple[list[Resnet], Conv | None]] = []
        for level, outer in enumerate(design.channels):
            name = f"encoder.down_blocks.{level}"
            inputs = [width] + [outer] * (design.layers - 1)
            blocks = [
                _resnet(design, take, f"{name}.resnets.{one}", inner, outer)
                for one, inner in enumerate(inputs)
            ]
            resize = None
            if level < last:
                resize = Conv(
                    take, f"{name}.downsamplers.0.conv", outer, outer, stride=2, padding=0
                )
            self._levels.append((blocks, resize))
            width = outer
        self._middle = _Middle(design, take, "encoder.mid_block")
        self._norm_out = GroupNorm(take, "encoder.conv_norm_out", width, design.groups, _EPSILON)
        self._conv_out = Conv(take, "encoder.conv_out", width, 2 * design.latent)

    def __call__(self, x: Tensor) -> Tensor:
        x = self._conv_in(x)
        for blocks, resize in self._levels:
            for block in blocks:
                x = block(x)
            if resize is not None:
                x = resize(_with_zeros(x))
        return self._conv_out(ub.silu(self._norm_out(self._middle(x))))


class _Decoder:
    """Latents to pictures."""

    def __init__(self, design: VaeDesign, take: Take) -> None:
        width = design.channels[-1]
        self._conv_in = Conv(take, "decoder.conv_in", design.latent, width)
        self._middle = _Middle(design, take, "decoder.mid_block")
        self._levels: list[tuple[list[Resnet], Upsample | None]] = []
        for level, outer in enumerate(reversed(design.channels)):
            name = f"decoder.up_blocks.{level}"
            blocks = [
                _resnet(design, take, f"{name}.resnets.{one}", inner, outer)
                for one, inner in enumerate([width] + [outer] * design.layers)
            ]
            grow = None
            if level < len(design.channels) - 1:
                grow = Upsample(take, f"{name}.upsamplers.0", outer)
            self._levels.append((blocks, grow))
            width = outer
        self._norm_out = GroupNorm(take, "decoder.conv_norm_out", width, design.groups, _EPSILON)
        self._conv_out = Conv(take, "decoder.conv_out", width, _COLORS)

    def __call__(self, x: Tensor) -> Tensor:
        x = self._middle(self._conv_in(x))
        for blocks, grow in self._levels:
            for block in blocks:
                x = block(x)
            if grow is not None:
                x = grow(x, 2 * x.shape[2], 2 * x.shape[3])
        return self._conv_out(ub.silu(self._norm_out(x)))


def _resnet(design: VaeDesign, take: Take, name: str, inner: int, outer: int) -> Resnet:
    return Resnet(take, name, inner, outer, design.groups, epsilon=_EPSILON)


def _with_zeros(x: Tensor) -> Tensor:
    """Images with one more row and column of zeros, at the end."""
    batch, width, rows, columns = x.shape
    column = ub.zeros((batch, width, rows, 1), x.dtype, device=x.device)
    row = ub.zeros((batch, width, 1, columns + 1), x.dtype, device=x.device)
    return ub.concatenate([ub.concatenate([x, column], 3), row], 2)


def _tiled(network: Callable[[Tensor], Tensor], x: Tensor, tile: int, made: int) -> Tensor:
    """Run a network that makes `made` rows of `tile` rows, on tiles if there are many rows."""
    if max(x.shape[2:]) <= 2 * tile:
        return network(x)
    step, shared = tile * 3 // 4, made // 4
    above: list[Tensor] = []
    joined = []
    for row in range(0, x.shape[2], step):
        tiles: list[Tensor] = []
        for number, column in enumerate(range(0, x.shape[3], step)):
            part = network(x[:, :, row : row + tile, column : column + tile].contiguous())
            if above:
                part = _blended(above[number], part, 2, shared)
            if tiles:
                part = _blended(tiles[-1], part, 3, shared)
            tiles.append(part)
        kept = made - shared
        joined.append(ub.concatenate([one[:, :, :kept, :kept] for one in tiles], 3))
        above = tiles
    return ub.concatenate(joined, 2)


def _blended(before: Tensor, tile: Tensor, axis: int, shared: int) -> Tensor:
    """A tile whose first rows or columns gradually replace the last of the tile before it."""
    extent = min(before.shape[axis], tile.shape[axis], shared)
    ramp = np.arange(extent, dtype=np.float32) / extent
    share = ub.asarray(ramp, device=tile.device).astype(tile.dtype, copy=False)
    start = before.shape[axis] - extent
    if axis == 2:
        old, new, rest = before[:, :, start:], tile[:, :, :extent], tile[:, :, extent:]
        share = share.reshape(-1, 1)
    else:
        old, new, rest = before[..., start:], tile[..., :extent], tile[..., extent:]
    return ub.concatenate([old + (new - old) * share, rest], axis)

"""The variational autoencoder: pictures to latents and back, in tiles if they are large.

Kingma and Welling, "Auto-Encoding Variational Bayes" (2014). Pictures are (batch, 3, rows, columns)
from -1 to 1.
"""

from __future__ import annotations

import numpy as np

import ubridge as ub
from ubridge.models.diffusion import layers as nn
from ubridge.models.diffusion.design import VaeDesign
from ubridge.models.diffusion.layers import Layer, Take, Tensor

_LOG_VARIANCE = (-30.0, 20.0)
_COLORS = 3


class Vae:
    """Encoder and decoder. Any thread may use it.

    Pictures with more rows or columns than two tiles go through the networks tile by tile. A
    quarter of each tile is blended with its neighbour.
    """

    def __init__(self, design: VaeDesign, take: Take) -> None:
        """Take the weights by their names in diffusers."""
        self.design = design
        latent, both = design.latent, 2 * design.latent
        after = nn.conv(take / "quant_conv", both, both, 1)
        self._encoder = [*_encoder(design, take / "encoder"), after]
        before = nn.conv(take / "post_quant_conv", latent, latent, 1)
        self._decoder = [before, *_decoder(design, take / "decoder")]

    def encode(self, pictures: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and standard deviation of latents, which are not scaled.

        Rows and columns of pictures are multiples of `design.factor`.
        """
        tile = self.design.tile
        moments = _tiled(self._encoder, pictures, tile, tile // self.design.factor)
        mean, spread = ub.split(moments, 2, 1)
        return mean, ub.exp(ub.clip(spread, *_LOG_VARIANCE) * 0.5)

    def decode(self, latents: Tensor) -> Tensor:
        """Return the pictures of latents, which are not scaled."""
        tile = self.design.tile
        return _tiled(self._decoder, latents, tile // self.design.factor, tile)


def _encoder(design: VaeDesign, take: Take) -> list[Layer]:
    """Layers from pictures to twice the latents' channels."""
    width = design.channels[0]
    layers = [nn.conv(take / "conv_in", _COLORS, width)]
    for level, outer in enumerate(design.channels):
        at = take / f"down_blocks.{level}"
        for layer in range(design.layers):
            layers.append(nn.resnet(at / f"resnets.{layer}", design, width, outer))
            width = outer
        if level < len(design.channels) - 1:
            half = nn.conv(at / "downsamplers.0.conv", width, width, stride=2, padding=0)
            layers += [_with_zeros, half]
    layers += _middle(design, take / "mid_block", width)
    return [*layers, nn.head(take, design, width, 2 * design.latent)]


def _decoder(design: VaeDesign, take: Take) -> list[Layer]:
    """Layers from latents to pictures."""
    width = design.channels[-1]
    layers = [nn.conv(take / "conv_in", design.latent, width)]
    layers += _middle(design, take / "mid_block", width)
    for level, outer in enumerate(reversed(design.channels)):
        at = take / f"up_blocks.{level}"
        for layer in range(design.layers + 1):
            layers.append(nn.resnet(at / f"resnets.{layer}", design, width, outer))
            width = outer
        if level < len(design.channels) - 1:
            layers.append(_doubled(at / "upsamplers.0", width))
    return [*layers, nn.head(take, design, width, _COLORS)]


def _middle(design: VaeDesign, take: Take, width: int) -> list[Layer]:
    """Residual blocks around attention with one head, at the lowest resolution."""
    before, after = (nn.resnet(take / f"resnets.{one}", design, width, width) for one in (0, 1))
    at = take / "attentions.0"
    norm = nn.group_norm(at / "group_norm", width, design.groups, design.epsilon)
    attend = nn.attention(at, width, 1, bias=True)

    def attended(x: Tensor) -> Tensor:
        return x + attend(norm(x).reshape(*x.shape[:2], -1).mT).mT.reshape(x.shape)

    return [before, attended, after]


def _doubled(take: Take, width: int) -> Layer:
    """A resize to twice the rows and columns."""
    grow = nn.upsample(take, width)
    return lambda x: grow(x, 2 * x.shape[2], 2 * x.shape[3])


def _with_zeros(x: Tensor) -> Tensor:
    """Images with one more row and column of zeros, at the end."""
    return ub.pad(x, [(0, 0), (0, 0), (0, 1), (0, 1)])


def _tiled(layers: list[Layer], x: Tensor, tile: int, made: int) -> Tensor:
    """Run layers that turn `tile` rows into `made`; tile large inputs."""
    if max(x.shape[2:]) <= 2 * tile:
        for layer in layers:
            x = layer(x)
        return x
    step, shared = tile * 3 // 4, made // 4
    above: list[Tensor] = []
    joined = []
    for row in range(0, x.shape[2], step):
        tiles: list[Tensor] = []
        for number, column in enumerate(range(0, x.shape[3], step)):
            part = x[:, :, row : row + tile, column : column + tile].contiguous()
            part = _tiled(layers, part, tile, made)
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
    """A tile whose first rows or columns are blended with the last of the tile before it."""
    extent = min(before.shape[axis], tile.shape[axis], shared)
    ramp = np.arange(extent, dtype=np.float32) / extent
    share = ub.asarray(ramp.reshape(-1, *[1] * (3 - axis)), device=tile.device)
    old = ub.split(before, [before.shape[axis] - extent], axis)[1]
    new, rest = ub.split(tile, [extent], axis)
    return ub.concatenate([old + (new - old) * share.astype(tile.dtype, copy=False), rest], axis)

"""Layers that the networks share: products, convolutions, norms, attention, residual blocks.

Each function takes a layer's weights by their names and returns the layer, a function of tensors.
So the same code defines a network's tensors, their shapes and their use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any, TypeAlias

import ubridge as ub
from ubridge.models.diffusion.design import UNetDesign, VaeDesign
from uhal.dtypes import f32

Tensor: TypeAlias = ub.DeviceTensor
Weight: TypeAlias = ub.DeviceTensor | ub.QuantizedWeight
Layer: TypeAlias = Callable[..., Tensor]
Design: TypeAlias = UNetDesign | VaeDesign
_WIDEST = 256
"""Elements of the widest head that the kernels of attention take."""
_MOST_SCORES = 1 << 24
"""Scores in memory at once for wider heads."""


class TooManyError(Exception):
    """A network asked for more weights than `Take` allows."""


class Take:
    """Weights of a network by name, below a prefix. Without weights, `Take` only notes names."""

    def __init__(self, weights: Mapping[str, Weight] | None = None, most: int = 1 << 63) -> None:
        """`most` is the number of names at which `TooManyError` is raised."""
        self._weights, self._most, self._prefix = weights, most, ""
        self.wanted: dict[str, tuple[int, ...]] = {}
        """Shapes of all parameters that were asked for."""

    def __truediv__(self, name: str) -> Take:
        """Return the weights whose names begin with a name and a dot."""
        inner = copy(self)
        inner._prefix += f"{name}."
        return inner

    def __call__(self, name: str, *shape: int) -> Any:
        """Return the weight of a name, which has this shape."""
        self.wanted[f"{self._prefix}{name}"] = shape
        if len(self.wanted) > self._most:
            raise TooManyError
        return self._weights and self._weights[f"{self._prefix}{name}"]


def linear(take: Take, columns: int, rows: int, *, bias: bool = True) -> Layer:
    """Return a product with a matrix: (…, columns) becomes (…, rows)."""
    weight, added = take("weight", rows, columns), take("bias", rows) if bias else None
    return lambda x: ub.linear(x, weight, added)


def conv(
    take: Take, inner: int, outer: int, window: int = 3, stride: int = 1, padding: int | None = None
) -> Layer:
    """Return a convolution of images. The usual padding keeps the size if the stride is 1.

    The layer also takes values of (batch, results), which it adds to the images with its bias.
    """
    weight, bias = take("weight", outer, inner, window, window), take("bias", outer)
    around = window // 2 if padding is None else padding

    def run(x: Tensor, more: Tensor | None = None) -> Tensor:
        added: Tensor = bias if more is None else more + bias
        found = ub.conv2d(x, weight, stride=stride, padding=around)
        return ub.add(found, added.reshape(*added.shape, 1, 1), out=found)

    return run


def layer_norm(take: Take, width: int, epsilon: float = 1e-5) -> Layer:
    """Return a norm of the last axis."""
    weight, bias = take("weight", width), take("bias", width)
    return lambda x: ub.layer_norm(x, weight, bias, epsilon)


def group_norm(take: Take, width: int, groups: int, epsilon: float) -> Layer:
    """Return a norm of groups of channels."""
    weight, bias = take("weight", width), take("bias", width)
    return lambda x: ub.group_norm(x, weight, bias, groups, epsilon)


def attention(
    take: Take,
    width: int,
    heads: int,
    context: int | None = None,
    *,
    bias: bool = False,
    parts: Sequence[str] = ("to_q", "to_k", "to_v", "to_out.0"),
) -> Layer:
    """Return attention of (batch, tokens, width) to itself or to a context of another width."""
    columns = (width, context or width, context or width)
    products = [
        linear(take / part, one, width, bias=bias)
        for part, one in zip(parts, columns, strict=False)
    ]
    last = linear(take / parts[3], width, width)

    def run(x: Tensor, context: Tensor | None = None, *, causal: bool = False) -> Tensor:
        given = (x, x, x) if context is None else (x, context, context)
        query, key, value = (
            product(one).reshape(*one.shape[:2], heads, -1).swapaxes(1, 2)
            for product, one in zip(products, given, strict=True)
        )
        return last(_attended(query, key, value, causal).swapaxes(1, 2).reshape(x.shape))

    return run


def _attended(query: Tensor, key: Tensor, value: Tensor, causal: bool) -> Tensor:
    """Attention of heads, in parts where they are too wide for the kernels of `ub.attention`."""
    count, width = query.shape[2:]
    if width <= _WIDEST:
        return ub.attention(query, key, value, causal=causal)
    assert not causal
    wide, keys = query.astype(f32, copy=False) * width**-0.5, key.astype(f32, copy=False).mT
    each = max(1, _MOST_SCORES // key.shape[2])
    found = []
    for first in range(0, count, each):
        scores = ub.softmax(wide[:, :, first : first + each] @ keys)
        found.append(scores.astype(value.dtype, copy=False) @ value)
    return found[0] if len(found) == 1 else ub.concatenate(found, 2)


def resnet(take: Take, design: Design, inner: int, outer: int) -> Layer:
    """Return two convolutions beside the identity, for images and perhaps a time's embedding.

    The embedding goes through silu and is added after the first convolution.
    """
    first, second = (
        _normed(take, f"norm{one}", f"conv{one}", design, width, outer)
        for one, width in ((1, inner), (2, outer))
    )
    time = linear(take / "time_emb_proj", design.time, outer) if design.time else None
    shortcut = conv(take / "conv_shortcut", inner, outer, 1) if inner != outer else None

    def run(x: Tensor, emb: Tensor | None = None) -> Tensor:
        found = second(first(x, None if time is None else time(emb)))
        return ub.add(found, x if shortcut is None else shortcut(x), out=found)

    return run


def head(take: Take, design: Design, inner: int, outer: int) -> Layer:
    """Return the last layers of a network: norm, silu and convolution."""
    return _normed(take, "conv_norm_out", "conv_out", design, inner, outer)


def _normed(take: Take, norm: str, name: str, design: Design, inner: int, outer: int) -> Layer:
    """A convolution behind a norm and silu. Large images are changed in place."""
    before = group_norm(take / norm, inner, design.groups, design.epsilon)
    product = conv(take / name, inner, outer)

    def run(x: Tensor, more: Tensor | None = None) -> Tensor:
        x = before(x)
        return product(ub.silu(x, out=x), more)

    return run


def upsample(take: Take, width: int) -> Layer:
    """Return a convolution of images that are first resized to given rows and columns."""
    product = conv(take / "conv", width, width)
    return lambda x, rows, columns: product(ub.upsample_nearest2d(x, rows, columns))

"""Layers that the networks share: products, convolutions, norms, attention, residual blocks.

A layer takes its weights when it is made, by a function of names and shapes. So the same lines say
which tensors a network has, which shapes they have and how they are used.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias

import ubridge as ub
from uhal.dtypes import f32

Tensor: TypeAlias = ub.DeviceTensor
Weight: TypeAlias = ub.DeviceTensor | ub.QuantizedWeight
_WIDEST = 256
"""Elements of the widest head that the kernels of attention take."""
_MOST_SCORES = 1 << 24
"""Scores in memory at once for wider heads."""


class Take(Protocol):
    """Returns the weight of a name."""

    def __call__(self, name: str, *shape: int) -> Tensor:
        """Return the tensor of a name, which must have this shape."""

    def matrix(self, name: str, rows: int, columns: int) -> Weight:
        """Return a matrix, perhaps quantized. Files may have it as a convolution of 1 x 1."""


class Linear:
    """A product with a matrix: (…, columns) becomes (…, rows)."""

    def __init__(
        self, take: Take, name: str, columns: int, rows: int, *, bias: bool = True
    ) -> None:
        """Take the weights of a name."""
        self.weight = take.matrix(f"{name}.weight", rows, columns)
        self.bias = take(f"{name}.bias", rows) if bias else None

    def __call__(self, x: Tensor) -> Tensor:
        """Return x @ weight.T + bias."""
        return ub.linear(x, self.weight, self.bias)


class Conv:
    """A convolution of images with square windows."""

    def __init__(
        self,
        take: Take,
        name: str,
        inner: int,
        outer: int,
        window: int = 3,
        *,
        stride: int = 1,
        padding: int | None = None,
    ) -> None:
        """Take the weights of a name; the usual padding keeps the size if the stride is 1."""
        self.weight = take(f"{name}.weight", outer, inner, window, window)
        self.bias = take(f"{name}.bias", outer)
        self._stride = stride
        self._padding = window // 2 if padding is None else padding

    def __call__(self, x: Tensor) -> Tensor:
        """Return (batch, results, rows, columns)."""
        return self.product(x) + self.bias.reshape(-1, 1, 1)

    def product(self, x: Tensor) -> Tensor:
        """Return the convolution without its bias."""
        return ub.conv2d(x, self.weight, stride=self._stride, padding=self._padding)


class LayerNorm:
    """A norm of the last axis."""

    def __init__(self, take: Take, name: str, width: int, epsilon: float = 1e-5) -> None:
        """Take the weights of a name."""
        self.weight, self.bias = (take(f"{name}.{one}", width) for one in ("weight", "bias"))
        self._epsilon = epsilon

    def __call__(self, x: Tensor) -> Tensor:
        """Return the norm, of the same shape."""
        return ub.layer_norm(x, self.weight, self.bias, self._epsilon)


class GroupNorm:
    """A norm of groups of channels."""

    def __init__(self, take: Take, name: str, width: int, groups: int, epsilon: float) -> None:
        """Take the weights of a name."""
        self.weight, self.bias = (take(f"{name}.{one}", width) for one in ("weight", "bias"))
        self._groups, self._epsilon = groups, epsilon

    def __call__(self, x: Tensor) -> Tensor:
        """Return the norm, of the same shape."""
        return ub.group_norm(x, self.weight, self.bias, self._groups, self._epsilon)


class Attention:
    """Attention of (batch, tokens, width) to itself or to a context."""

    def __init__(
        self,
        take: Take,
        name: str,
        width: int,
        heads: int,
        *,
        context: int | None = None,
        bias: bool = False,
        parts: tuple[str, ...] = ("to_q", "to_k", "to_v", "to_out.0"),
    ) -> None:
        """Take the weights of a name; `parts` name the four products."""
        seen = context or width
        query, key, value, out = (f"{name}.{part}" for part in parts)
        self._query = Linear(take, query, width, width, bias=bias)
        self._key = Linear(take, key, seen, width, bias=bias)
        self._value = Linear(take, value, seen, width, bias=bias)
        self._out = Linear(take, out, width, width)
        self._heads = heads

    def __call__(self, x: Tensor, context: Tensor | None = None, *, causal: bool = False) -> Tensor:
        """Return (batch, tokens, width)."""
        seen = x if context is None else context
        query, key = self._split(self._query(x)), self._split(self._key(seen))
        found = _attended(query, key, self._split(self._value(seen)), causal)
        return self._out(found.swapaxes(1, 2).reshape(x.shape))

    def _split(self, x: Tensor) -> Tensor:
        """The heads of (batch, tokens, width): (batch, heads, tokens, width of a head)."""
        return x.reshape(*x.shape[:2], self._heads, -1).swapaxes(1, 2)


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


class Resnet:
    """Two convolutions beside the identity, the first with the time's embedding added."""

    def __init__(
        self,
        take: Take,
        name: str,
        inner: int,
        outer: int,
        groups: int,
        *,
        epsilon: float,
        time: int | None = None,
    ) -> None:
        """Take the weights of a name; `time` is the width of the embedding."""
        self._norm1 = GroupNorm(take, f"{name}.norm1", inner, groups, epsilon)
        self._conv1 = Conv(take, f"{name}.conv1", inner, outer)
        self._time = None
        if time is not None:
            self._time = Linear(take, f"{name}.time_emb_proj", time, outer)
        self._norm2 = GroupNorm(take, f"{name}.norm2", outer, groups, epsilon)
        self._conv2 = Conv(take, f"{name}.conv2", outer, outer)
        self._shortcut = None
        if inner != outer:
            self._shortcut = Conv(take, f"{name}.conv_shortcut", inner, outer, 1)

    def __call__(self, x: Tensor, time: Tensor | None = None) -> Tensor:
        """Return (batch, outer, rows, columns); `time` is the embedding behind its silu."""
        added = self._conv1.bias
        if self._time is not None and time is not None:
            # One addition to the images instead of two.
            added = self._time(time) + added
        found = self._conv1.product(ub.silu(self._norm1(x))) + added.reshape(*added.shape, 1, 1)
        found = self._conv2(ub.silu(self._norm2(found)))
        return found + (x if self._shortcut is None else self._shortcut(x))


class Upsample:
    """Twice the rows and columns, then a convolution."""

    def __init__(self, take: Take, name: str, width: int) -> None:
        """Take the weights of a name."""
        self._conv = Conv(take, f"{name}.conv", width, width)

    def __call__(self, x: Tensor, rows: int, columns: int) -> Tensor:
        """Return (batch, width, rows, columns)."""
        return self._conv(ub.upsample_nearest2d(x, rows, columns))

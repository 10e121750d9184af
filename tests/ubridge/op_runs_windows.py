"""Runs as in `op_runs.py`, for families with windows and for products."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import ubridge as ub
from tests.ubridge.op_runs import Outcome, Trial, Wide, run, wide
from tests.ubridge.operands import Array
from ubridge import OPS


def padded(x: Array, padding: int) -> Array:
    return np.pad(x, [(0, 0), (0, 0), *[(padding, padding)] * (x.ndim - 2)])


def windows_of(x: Array, sizes: tuple[int, ...], stride: int, dilation: int) -> Array:
    """(batch, channels, positions…, window…)"""
    reach = [dilation * (size - 1) + 1 for size in sizes]
    found = np.lib.stride_tricks.sliding_window_view(x, reach, tuple(range(2, x.ndim)))
    steps = (slice(None), slice(None), *[slice(None, None, stride)] * len(sizes))
    return found[(*steps, *[slice(None, None, dilation)] * len(sizes))]


def images(t: Trial, axes: int) -> tuple[int, ...]:
    """Return a shape large enough for windows; the layout only chooses batch and channels."""
    batch, channels = t.shape(2) if t.layout != "prime" else (2, 3)
    least = [int(n) for n in t.rng.integers(5, 9, axes)]
    return (min(batch, 3), max(min(channels, 3), 1), *least)


@run("conv1d", "conv2d")
def convolution(t: Trial) -> Iterator[Outcome]:
    axes = int(t.op.name[4])
    x = t.x(images(t, axes))
    sizes = tuple(t.length(3) for _ in range(axes))
    weight = t.other((t.length(3), x.array.shape[1], *sizes))
    stride, padding = t.length(3), int(t.rng.integers(0, 3))
    dilation = 1 if t.row.backend == "tops" and axes == 1 else t.length(2)
    window = {"stride": stride, "padding": padding, "dilation": dilation}
    got = getattr(ub, t.op.name)(x.tensor, weight.tensor, **window).to_numpy()

    def of(x: Array, weight: Array) -> Array:
        parts = windows_of(padded(x, padding), sizes, stride, dilation)
        positions, taps = "xy"[:axes], "uv"[:axes]
        return np.einsum(f"bc{positions}{taps},oc{taps}->bo{positions}", parts, weight)

    operands = (wide(x), wide(weight))
    terms = weight.array[0].size
    yield Outcome(got, of(*operands), of(*map(abs, operands)), terms)


@run("conv_transpose1d", "conv_transpose2d")
def transposed_convolution(t: Trial) -> Iterator[Outcome]:
    axes = int(t.op.name[-2])
    x = t.x(images(t, axes))
    sizes = tuple(t.length(3) for _ in range(axes))
    weight = t.other((x.array.shape[1], t.length(3), *sizes))
    stride, dilation = t.length(3), t.length(2)
    window = {"stride": stride, "dilation": dilation}
    got = getattr(ub, t.op.name)(x.tensor, weight.tensor, **window).to_numpy()

    def of(x: Array, weight: Array) -> Array:
        whole = [
            (n - 1) * stride + dilation * (size - 1) + 1
            for n, size in zip(x.shape[2:], sizes, strict=True)
        ]
        result = np.zeros((len(x), weight.shape[1], *whole), x.dtype)
        for tap in np.ndindex(*sizes):
            at = [
                slice(dilation * one, dilation * one + (n - 1) * stride + 1, stride)
                for one, n in zip(tap, x.shape[2:], strict=True)
            ]
            result[(slice(None), slice(None), *at)] += np.einsum(
                "bc...,co->bo...", x, weight[(slice(None), slice(None), *tap)]
            )
        return result

    operands = (wide(x), wide(weight))
    terms = weight.array[:, 0].size
    yield Outcome(got, of(*operands), of(*map(abs, operands)), terms)


@run("pool2d")
def pool(t: Trial) -> Iterator[Outcome]:
    x = t.x(images(t, 2))
    size, stride = t.length(3), t.length(3)
    got = getattr(ub, t.op.name)(x.tensor, size, stride).to_numpy()
    parts = windows_of(wide(x), (size, size), stride, 1)
    if t.op.name == "max_pool2d":
        yield Outcome(got, parts.max((-1, -2)))
        return
    sums = parts.sum((-1, -2))
    exact = sums / Wide(size * size) if t.is_float else sums // (size * size)
    yield Outcome(got, exact, abs(parts).sum((-1, -2)) / (size * size), size * size)


@run("nearest2d")
def nearest(t: Trial) -> Iterator[Outcome]:
    x = t.x(images(t, 2))
    to = [t.length(12), t.length(12)]
    got = ub.upsample_nearest2d(x.tensor, *to).to_numpy()
    rows, columns = (
        np.minimum((np.arange(count) * (n / count)).astype(int), n - 1)
        for count, n in zip(to, x.array.shape[2:], strict=True)
    )
    yield Outcome(got, wide(x)[:, :, rows][..., columns])


@run("bilinear2d")
def bilinear(t: Trial) -> Iterator[Outcome]:
    if not t.is_float:
        return  # a value between two integers has no exact integer result
    x = t.x(images(t, 2))
    exact = wide(x)
    to = [2 * n for n in x.array.shape[2:]]
    got = ub.upsample_bilinear2d(x.tensor, *to).to_numpy()
    for axis, count in zip((2, 3), to, strict=True):
        position = np.maximum((np.arange(count) + Wide(0.5)) / 2 - Wide(0.5), 0)
        low = position.astype(int)
        high = np.minimum(low + 1, x.array.shape[axis] - 1)
        share = (position - low).reshape([-1 if one == axis else 1 for one in range(4)])
        exact = np.take(exact, low, axis) * (1 - share) + np.take(exact, high, axis) * share
    yield Outcome(got, exact, abs(wide(x)).max(initial=0))


@run("im2col1d", "im2col")
def rows_of_windows(t: Trial) -> Iterator[Outcome]:
    axes = 1 if t.op.name == "im2col1d" else 2
    x = t.x(images(t, axes))
    sizes = tuple(t.length(3) for _ in range(axes))
    stride, padding = t.length(2), int(t.rng.integers(0, 2))
    buffer, shape = ub.launch_im2col(
        x.tensor.buffer, x.tensor.layout, sizes, stride=stride, padding=padding
    )
    parts = windows_of(padded(wide(x), padding), sizes, stride, 1)
    exact = np.moveaxis(parts, 1, 1 + axes)
    yield Outcome(buffer.to_numpy().reshape(shape), exact)


@run("col2im1d")
def windows_added(t: Trial) -> Iterator[Outcome]:
    x = t.x(t.shape(4))
    if not x.array.size:
        return
    batch, length, channels, size = x.array.shape
    stride = t.length(3)
    buffer, shape = ub.launch_col2im1d(x.tensor.buffer, x.tensor.layout, stride=stride)

    def of(x: Array) -> Array:
        whole = np.zeros((batch, channels, (length - 1) * stride + size), x.dtype)
        for position in range(length):
            whole[:, :, position * stride : position * stride + size] += x[:, position]
        return whole

    yield Outcome(buffer.to_numpy().reshape(shape), of(wide(x)), of(abs(wide(x))), size)


@run("matmul")
def matmul(t: Trial) -> Iterator[Outcome]:
    x = t.x(t.shape(int(t.rng.integers(2, 5))))
    y = t.other((*x.array.shape[:-2], x.array.shape[-1], t.length(70)))
    got = (x.tensor @ y.tensor).to_numpy()
    operands = (wide(x), wide(y))
    magnitude = np.matmul(*map(abs, operands))
    yield Outcome(got, np.matmul(*operands), magnitude, x.array.shape[-1])


@run("attention")
def attention(t: Trial) -> Iterator[Outcome]:
    batch, kv_heads, queries, width = (min(n, 8) for n in t.shape(4))
    group, keys = t.length(2), t.length(9)
    query = t.x((batch, kv_heads * group, queries, width))
    key, value = (t.other((batch, kv_heads, keys, width)) for _ in range(2))
    if not query.array.size:
        return
    got = ub.attention(query.tensor, key.tensor, value.tensor).to_numpy()
    q, (k, v) = wide(query), (np.repeat(wide(one), group, 1) for one in (key, value))
    scale = 1 / np.sqrt(Wide(width))
    weights = OPS["softmax"].reference(q @ k.swapaxes(-1, -2) * scale)  # type: ignore[misc]
    scores = (abs(q) @ abs(k).swapaxes(-1, -2) * scale).max()
    # A softmax weight's relative error is the absolute error of its score.
    yield Outcome(got, weights @ v, 4 * (1 + scores) * abs(v).max(), 1 + keys)


@run("kv_concat")
def kv_concat(t: Trial) -> Iterator[Outcome]:
    x = t.x(t.shape(t.length(4)))
    axis = int(t.rng.integers(x.array.ndim))
    shape = list(x.array.shape)
    shape[axis] = t.length()
    y = t.other(tuple(shape))
    got = ub.kv_concat(x.tensor, y.tensor, axis).to_numpy()
    yield Outcome(got, np.concatenate((wide(x), wide(y)), axis))

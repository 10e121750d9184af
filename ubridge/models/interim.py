"""Rotation and attention over a cache, of operations there are."""

from __future__ import annotations

import numpy as np

import ubridge as ub

Tensor = ub.DeviceTensor


def rotate(x: Tensor, cos: Tensor, sin: Tensor, first: Tensor, *, interleaved: bool) -> Tensor:
    start, count = int(first), x.shape[0]
    rows = [one[start : start + count].astype(x.dtype) for one in (cos, sin)]
    width = 2 * cos.shape[1]
    turned = x[..., :width].swapaxes(0, 1).expand_dims(0)
    done = ub.rope(turned, *rows, interleaved=interleaved)[0].swapaxes(0, 1)
    return done if width == x.shape[2] else ub.concatenate([done, x[..., width:]], 2)


def cached_attention(query, keys, values, first, *, scale, window, cap, bias):
    start, count = int(first), query.shape[0]
    length = start + count
    heads = query.swapaxes(0, 1)
    group = query.shape[1] // keys.shape[0]
    k, v = (
        one[:, :length].expand_dims(1).broadcast_to((keys.shape[0], group, length, keys.shape[2]))
        .reshape(query.shape[1], length, keys.shape[2]) for one in (keys, values)
    )
    scores = (heads @ k.mT).astype("f32") * scale
    if cap:
        scores = ub.tanh(scores / cap) * cap
    if bias is not None:
        scores = scores + bias[:, None, :length]
    j, i = np.arange(length), np.arange(start, length)[:, None]
    hidden = (j > i) | ((j <= i - window) if window else False)
    scores = scores + ub.asarray(np.where(hidden, -np.inf, 0).astype(np.float32), device=query.device)
    return (ub.softmax(scores).astype(query.dtype) @ v).swapaxes(0, 1)

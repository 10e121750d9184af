"""Graph files and their mutants: one graph with operations of all kinds, changed at random.

`run_mutants` is called in a process of its own, which a mutant may crash.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import json
import random
import warnings
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import ubridge as ub
from tests.ubridge.op_calls import call_of, of_family
from ubridge import ComputeGraph, DeviceTensor, execute_graph
from ubridge.definitions.table import FAMILIES
from uhal import Device, DeviceBuffer
from uhal.errors import ArgumentValueError, DeviceError, NotFoundError, OutOfMemoryError

MOST_ELEMENTS = 1 << 22
"""Limit of elements of a mutant that runs: a valid sum may repeat an element 2^60 times."""


def traced(rng: np.random.Generator) -> ComputeGraph:
    """Return a graph with an operation of every family, over leaves with random contents."""

    def fresh(*shape: int, dtype: str = "f4") -> DeviceTensor:
        return ub.asarray(rng.standard_normal(shape).astype(dtype))

    def ids(most: int, *shape: int) -> DeviceTensor:
        return ub.asarray(rng.integers(0, most, shape))

    x, y, cube = fresh(4, 6), fresh(4, 6), fresh(2, 3, 8)
    mask = ub.asarray(rng.integers(0, 2, (4, 6)).astype("u1"))
    image, signal = fresh(1, 2, 5, 6), fresh(2, 2, 7)
    heads, keys = fresh(2, 4, 3, 8), fresh(2, 2, 5, 8)
    rotated, angles = fresh(2, 2, 3, 4), fresh(3, 2)
    changed, cache, filled, target = fresh(5, 6), fresh(2, 6, 4), fresh(4, 6), fresh(4, 6)
    weight = ub.QuantizedWeight.from_numpy(rng.standard_normal((5, 64)), "q8_0")
    experts = ub.QuantizedWeight.from_numpy(rng.standard_normal((3, 4, 64)), "q8_0")
    vector, chosen = fresh(2, 64), ub.asarray(rng.integers(0, 3, (2, 2)).astype("u4"))
    held: list[DeviceTensor] = []
    with ub.trace() as graph:
        graph.name(x, "x")
        position = graph.scalar("position", 1, low=0, high=5)
        held += [ub.exp(x.T), ub.elu(y, 0.5), ub.affine(y.T, 2.0, 1.0), x.astype("f8")]
        held += [x + y[0], ub.less(x[:2], y[::2]), ub.where(mask, x, y[1])]
        held += [ub.masked_fill(x, mask, -1.0), ub.masked_fill(x.T, mask.T, -1.0)]
        held.append(ub.silu_mul(x, y))
        filled.fill(3.0)
        target[:, 1:4] = x[:, :3]
        held += [ub.take(x, ids(4, 3), 0), ub.gather(x, ids(6, 4, 2), 1)]
        ub.scatter(changed, ids(5, 2, 6), fresh(2, 6), 0)
        ub.scatter_add(changed, ids(5, 2, 6), fresh(2, 6), 0)
        ub.index_add(changed, ids(5, 3), fresh(3, 6), 0)
        held += [x.sum(0), ub.argmax(x, 1), ub.softmax(cube), ub.log_softmax(cube)]
        held += [ub.rms_norm(cube, fresh(8)), ub.layer_norm(cube, fresh(8), fresh(8))]
        held += [ub.argsort(cube), ub.rope(rotated, angles, angles)]
        held += [ub.rope(rotated, angles, angles, interleaved=True)]
        held += [ub.rope(rotated, fresh(2, 2), fresh(2, 2), heads_last=True)]
        held += [ub.conv1d(signal, fresh(3, 2, 3)), ub.conv2d(image, fresh(3, 2, 2, 2), padding=1)]
        held.append(ub.conv_transpose1d(signal, fresh(2, 3, 3), stride=2))
        held.append(ub.conv_transpose2d(image, fresh(2, 3, 2, 2)))
        held += [ub.max_pool2d(image, (2, 2)), ub.upsample_nearest2d(image, 10, 9)]
        held.append(ub.upsample_bilinear2d(image, 7, 8))
        held += windows(image, signal)
        held += [x @ y.T, cube @ fresh(8, 2), ub.quantized_matmul(vector, weight)]
        held.append(ub.quantized_matmul(vector, weight, activations="q8"))
        held.append(ub.indexed_matmul(vector.expand_dims(1), experts, chosen))
        elements = ub.launch_dequantize("q8_0", weight.blocks, 5, 64)
        held.append(DeviceTensor(elements, ub.Layout.contiguous((5, 64))))
        held.append(ub.embedding(ids(5, 2, 3), weight))
        held.append(ub.attention(heads, keys, keys, mask=fresh(3, 5)))
        held.append(ub.attention(heads, keys, keys, causal=True))
        held += [ub.kv_concat(x, y, 0), ub.rand((3, 5), seed=1), ub.randn(7, "f16", seed=2**64 - 1)]
        ub.kv_append(cache, fresh(2, 2, 4), position)
        held.append(ub.rope_at(fresh(2, 2, 6), fresh(6, 2), fresh(6, 2), position))
        held.append(ub.cached_attention(fresh(2, 4, 4), cache, cache, position, bias=fresh(4, 6)))
        # Temporaries, which share the arena.
        held.append(ub.tanh(ub.exp(x) * y) - x)
        for name in families_beside(graph):
            held.append(call_of(of_family(name), x.device, rng)())
    assert not families_beside(graph)
    return graph


def families_beside(graph: ComputeGraph) -> list[str]:
    """Return the families without an operation in the graph."""
    held = {call.op.family.name for call in graph.calls if call is not None}
    return [name for name, family in FAMILIES.items() if family.rule and name not in held]


def windows(image: DeviceTensor, signal: DeviceTensor) -> list[DeviceTensor]:
    """Launch the kernels that turn windows into rows, and rows into windows."""
    rows, shape = ub.launch_im2col(image.buffer, image.layout, (2, 2))
    flat, _ = ub.launch_im2col(signal.buffer, signal.layout, (3,))
    parts = signal.reshape(1, 7, 2, 2)
    back, _ = ub.launch_col2im1d(parts.buffer, parts.layout)
    return [DeviceTensor(one) for one in (rows, flat, back)] + [DeviceTensor(rows).reshape(shape)]


# -- mutants -------------------------------------------------------------------------------------

_NUMBERS = (
    -1,
    0,
    1,
    2,
    3,
    7,
    8,
    31,
    255,
    1004,
    4000,
    4096,
    1 << 31,
    (1 << 32) - 1,
    1 << 32,
    1 << 61,
    (1 << 63) - 1,
    1 << 63,
    (1 << 64) - 1,
    1 << 64,
    10**30,
    -(1 << 63),
    10**400,
)
_ODD = (
    None,
    True,
    "",
    "x",
    0.5,
    -0.0,
    [],
    {},
    [[]],
    {"view": []},
    {"tuple": []},
    {"float": "nan"},
)


class Mutants:
    """Draws files that differ from a valid file in one to three places."""

    def __init__(self, rng: random.Random, text: str) -> None:
        self._rng = rng
        self._text = text
        self._parts: dict[Any, list[Any]] = defaultdict(list)
        for one in _parts(json.loads(text)):
            self._parts[_kind(one)].append(one)

    def draw(self) -> str:
        rng = self._rng
        whole = json.loads(self._text)
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            self._change(*self._somewhere(whole))
        text = json.dumps(whole)
        if rng.random() < 0.02:
            at = rng.randrange(len(text))
            text = text[:at] + rng.choice(("", "}", "1", '"', "\0", "[" * 5000)) + text[at + 1 :]
        return text

    def _somewhere(self, whole: Any) -> tuple[Any, Any]:
        """Return a random container and a key of it, mostly deep inside a node."""
        deep = "nodes" in whole and self._rng.random() < 0.8
        at, key = whole, "nodes" if deep else self._rng.choice(list(whole))
        while isinstance(at[key], (dict, list)) and at[key] and self._rng.random() < 0.9:
            at = at[key]
            key = self._rng.choice(list(at) if isinstance(at, dict) else range(len(at)))
        return at, key

    def _change(self, parent: Any, key: Any) -> None:
        rng, value, kind = self._rng, parent[key], self._rng.random()
        if kind < 0.05:
            del parent[key]
        elif kind < 0.08 and isinstance(parent, list):
            parent.insert(key, copy.deepcopy(value))
        elif kind < 0.35:
            # Copy a value of the same kind from elsewhere: another dtype, view, layout or
            # operation.
            like = self._parts[_kind(value)]
            parent[key] = copy.deepcopy(rng.choice(like)) if like else None
        elif kind < 0.4:
            # Insert a copy, because the next change may be inside of it.
            parent[key] = copy.deepcopy(rng.choice(_ODD))
        elif type(value) is int:
            near = (value - 1, value + 1, 2 * value, value + 1000, 1000 * value, -value)
            parent[key] = rng.choice(near if rng.random() < 0.6 else _NUMBERS)
        elif isinstance(value, list) and len(value) > 1:
            rng.shuffle(value)
        else:
            parent[key] = rng.choice(_NUMBERS)


def _parts(tree: Any) -> Iterator[Any]:
    yield tree
    if isinstance(tree, (dict, list)):
        for one in tree.values() if isinstance(tree, dict) else tree:
            yield from _parts(one)


def _kind(value: Any) -> Any:
    return tuple(value) if isinstance(value, dict) else type(value)


# -- running them --------------------------------------------------------------------------------


class Bystanders:
    """Memory around the graph's own, which must stay unchanged."""

    def __init__(self) -> None:
        self._all = [ub.full((1024,), 0x5A, "u1") for _ in range(32)]
        self._want = np.full(1024, 0x5A, "u1")

    def check(self) -> None:
        for one in self._all:
            assert np.array_equal(one.to_numpy(), self._want), "memory of others was written"


def run_mutants(seed: int, count: int, backend: str, folder: str) -> None:
    """Load `count` mutants and run the mutants that load; print their number.

    `folder/mutant.json` is the current mutant, which shows the cause if the process ends.
    """
    warnings.simplefilter("error")
    with Device(0, backend=backend):
        print(_run_mutants(seed, count, Path(folder, "mutant.json")))


def _run_mutants(seed: int, count: int, path: Path) -> int:
    around = [Bystanders()]
    graph = traced(np.random.default_rng(seed))
    around.append(Bystanders())
    graph.save(path)
    mutants = Mutants(random.Random(seed), path.read_text())
    before = {name: tensor.buffer.to_numpy() for name, tensor in graph.leaves.items()}
    leaves = {name: DeviceBuffer.from_numpy(values) for name, values in before.items()}
    around.append(Bystanders())
    loaded = 0
    for index in range(count):
        path.write_text(mutants.draw())
        try:
            found = ComputeGraph.load(path, leaves)
        except (ArgumentValueError, NotFoundError):
            continue
        loaded += 1
        if _elements(found) > MOST_ELEMENTS:
            continue
        for name, leaf in leaves.items():
            leaf.copy_from(before[name])
        _run(found)
        del found
        if index % 50 == 0:
            gc.collect()
            for one in around:
                one.check()
    for one in around:
        one.check()
    return loaded


def _elements(graph: ComputeGraph) -> int:
    """Return the size of the largest layout of the graph."""
    spans = [
        one.size
        for call in graph.calls
        if call is not None
        for _, one in (call.question.result, *call.question.operands)
    ]
    return max(spans, default=0)


def _run(graph: ComputeGraph) -> None:
    try:
        str(graph)
        graph.to_dot()
        execute_graph(graph)
        graph.executor.synchronize()
    except (DeviceError, IndexError) as error:
        # Refusals are expected for other dtypes, too much memory and ids out of bounds. A driver's
        # error from a kernel that ran is a bug.
        refused = getattr(error, "call", None) is None or isinstance(error, OutOfMemoryError)
        if not refused:
            raise
    with contextlib.suppress(IndexError):
        graph.executor.synchronize()


__all__ = ["run_mutants", "traced"]

"""A transformer of kernels written in Python: 430 launches, captured once, replayed by one call.

The step of a decoder is traced into a graph. A `KernelDispatch` launches kernels of `uhal.ptx` for
the graph's operations, and a plan captures the launches. The program compares the result with the
result of the device's own kernels. Weights are random.

    python examples/transformer_in_python.py                           on an NVIDIA GPU
    python -m uhal sim run examples/transformer_in_python.py           on the simulated driver
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import ubridge as ub
from uhal import Api, Stream
from uhal.ptx import f32, fast_exp, global_index, i64, if_, kernel, ready

LAYERS, HEADS, WIDTH, INNER, POSITIONS, VOCABULARY = 25, 2, 32, 128, 16, 64
HIDDEN = HEADS * WIDTH
EPSILON = 1e-5


@kernel("u32 n, const f32* x, const f32* y, f32* out")
def add(n: Any, x: Any, y: Any, out: Any) -> None:
    i = global_index()
    with if_(i < n):
        out[i] = x[i] + y[i]


@kernel("u32 n, const f32* x, const f32* y, f32* out")
def multiply(n: Any, x: Any, y: Any, out: Any) -> None:
    i = global_index()
    with if_(i < n):
        out[i] = x[i] * y[i]


@kernel("u32 n, const f32* x, f32* out")
def silu(n: Any, x: Any, out: Any) -> None:
    i = global_index()
    with if_(i < n):
        out[i] = x[i] / (fast_exp(-x[i]) + 1)


@kernel("u32 n, u32 width, u32 rows, const f32* x, const i64* position, f32* cache")
def copy_to_cache(n: Any, width: Any, rows: Any, x: Any, position: Any, cache: Any) -> None:
    i = global_index()
    with if_(i < n):
        cache.at(position[0] * i64(width))[i // width * rows * width + i % width] = x[i]


class PythonKernels(ub.LaunchingDispatch):
    """Launches kernels written in Python; the device's own kernels do other operations."""

    def __init__(self) -> None:
        self.launched = 0

    def _elementwise(self, made: Any, call: Any) -> None:
        self.launched += 1
        n = call.out.size
        made[-(-n // 128), 128, 0, call.stream](n, *call.inputs, call.out)

    def dispatch_add(self, call: Any) -> None:
        """Launch a sum."""
        self._elementwise(add, call)

    def dispatch_mul(self, call: Any) -> None:
        """Launch a product of elements."""
        self._elementwise(multiply, call)

    def dispatch_silu(self, call: Any) -> None:
        """Launch a SiLU."""
        self._elementwise(silu, call)

    def dispatch_rms_norm(self, call: Any) -> None:
        """Launch an RMS norm."""
        self.launched += 1
        x, weight = call.inputs
        ready.rms_norm()[1, 128, 0, call.stream](x.size, EPSILON, x, weight, call.out)

    def dispatch_mul_mat(self, call: Any) -> None:
        """Launch a product of a row and a matrix."""
        self.launched += 1
        x, weight = call.inputs
        n, k = call.out.size, x.size
        run = ready.gemm()[(-(-n // 16), 1), (16, 16), 0, call.stream]
        run(1, n, k, x, weight, call.out)

    def dispatch_rope(self, call: Any) -> None:
        """Launch a rotation of heads."""
        self.launched += 1
        x, cos, sin = call.inputs
        run = ready.rope()[-(-x.size // 128), 64, 0, call.stream]
        run(1, HEADS, WIDTH, cos, sin, x, call.out)

    def dispatch_kv_append(self, call: Any) -> None:
        """Launch a copy into a cache."""
        self.launched += 1
        source, position = call.inputs[-2:]
        run = copy_to_cache[1, source.size, 0, call.stream]
        run(source.size, WIDTH, POSITIONS, source, position, call.out)

    def dispatch_attention(self, call: Any) -> None:
        """Launch the attention of one query."""
        self.launched += 1
        query, key, value = call.inputs[:3]
        run = ready.attention(f32, WIDTH)[(1, HEADS), 128, 0, call.stream]
        run(1, POSITIONS, 1, WIDTH**-0.5, query, key, value, call.out)

    def dispatch_softmax(self, call: Any) -> None:
        """Launch a softmax of one row."""
        self.launched += 1
        (x,) = call.inputs
        ready.softmax()[1, 128, 0, call.stream](x.size, x, call.out)


class Decoder:
    """Random weights, and caches whose last position a step fills."""

    def __init__(self, rng: np.random.Generator) -> None:
        def random(*shape: int) -> ub.DeviceTensor:
            return ub.asarray((rng.standard_normal(shape) / shape[0] ** 0.5).astype("f4"))

        self.table, self.head = random(VOCABULARY, HIDDEN), random(HIDDEN, VOCABULARY)
        self.heat = ub.full((1, VOCABULARY), 0.8, "f32")
        self.norm = ub.ones(HIDDEN)
        angles = (POSITIONS - 1) * 10000.0 ** (-np.arange(WIDTH // 2) * 2 / WIDTH)
        self.cos, self.sin = (ub.asarray(f(angles).astype("f4")[None]) for f in (np.cos, np.sin))
        self.position = ub.asarray(np.array([POSITIONS - 1], "i8"))
        names = {"q": HIDDEN, "k": HIDDEN, "v": HIDDEN, "o": HIDDEN, "gate_up": 2 * INNER}
        self.layers = [
            {
                **{name: random(HIDDEN, columns) for name, columns in names.items()},
                "down": random(INNER, HIDDEN),
                "keys": random(1, HEADS, POSITIONS, WIDTH),
                "values": random(1, HEADS, POSITIONS, WIDTH),
            }
            for _ in range(LAYERS)
        ]

    def step(self, token: ub.DeviceTensor) -> ub.DeviceTensor:
        """Return the probabilities of the next token."""
        x = ub.embedding(token, self.table)
        for one in self.layers:
            normed = ub.rms_norm(x, self.norm, EPSILON)
            query, key, value = (
                (normed @ one[name]).reshape(1, HEADS, 1, WIDTH) for name in ("q", "k", "v")
            )
            ub.kv_append(one["keys"], ub.rope(key, self.cos, self.sin), self.position)
            ub.kv_append(one["values"], value, self.position)
            query = ub.rope(query, self.cos, self.sin)
            heads = ub.attention(query, one["keys"], one["values"])
            x = x + heads.reshape(1, HIDDEN) @ one["o"]
            both = ub.rms_norm(x, self.norm, EPSILON) @ one["gate_up"]
            x = x + (ub.silu(both[:, :INNER]) * both[:, INNER:]) @ one["down"]
        return ub.softmax(ub.rms_norm(x, self.norm, EPSILON) @ self.head * self.heat)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--seed", type=int, default=None)
    device = Api.quick_init(0, backend="cuda")
    decoder = Decoder(np.random.default_rng(parser.parse_args().seed))
    with ub.trace() as graph:
        probabilities = decoder.step(ub.asarray(np.array([3], "i8")))
    expected = probabilities.to_numpy()

    dispatch = PythonKernels()
    with Stream() as stream:
        ub.execute_graph(graph, dispatch, stream=stream)  # builds and loads the kernels
        stream.synchronize()
        with stream.capture("step") as plan:
            result = ub.execute_graph(graph, dispatch, stream=stream)
        probabilities.buffer.copy_from(np.zeros_like(expected).ravel())
        plan.replay()
        stream.synchronize()
        got = probabilities.to_numpy()
    print(f"{device.name}: {result.n_launches} operations captured, one replay")
    print(f"{dispatch.launched // 2} of them by kernels written in Python")
    print(f"largest difference from the device's own kernels: {np.abs(got - expected).max():.0e}")
    assert np.abs(got - expected).max() < 1e-4
    assert got.sum() > 0.99


if __name__ == "__main__":
    main()

"""Generate with a transformer of 28 layers: one step as a graph, run for 32 positions.

The step is traced once. Then it is executed operation by operation and replayed as a whole, with a
new token and position each time. Both must give the same bits and agree with numpy in double
precision. Weights are random.

Exit status: 0 all is right, 1 it is not, 3 it could not be computed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import ubridge as ub
from uhal import Api, Stream
from uhal.errors import DeviceError

Array = npt.NDArray[Any]
EPSILON = 1e-5
TOLERANCE = 1e-4
"""Allowed error relative to the largest logit, after all layers in f32."""


@dataclass(frozen=True)
class Sizes:
    """A model, small enough for a simulated device."""

    layers: int = 28
    heads: int = 4
    kv_heads: int = 2
    head_width: int = 8
    inner: int = 64
    vocabulary: int = 64
    positions: int = 32

    @property
    def width(self) -> int:
        """Number of elements of the residual stream."""
        return self.heads * self.head_width

    @property
    def kv_width(self) -> int:
        """Elements of the keys of one token, and of its values."""
        return self.kv_heads * self.head_width


def random_weights(sizes: Sizes, rng: np.random.Generator) -> dict[str, Array]:
    """All weights, f32, scaled so that values keep their size through the layers."""
    shapes: dict[str, tuple[int, ...]] = {
        "table": (sizes.vocabulary, sizes.width),
        "head": (sizes.width, sizes.vocabulary),
        "norm": (sizes.width,),
    }
    for layer in range(sizes.layers):
        shapes |= {
            f"{layer}.attention_norm": (sizes.width,),
            f"{layer}.qkv": (sizes.width, sizes.width + 2 * sizes.kv_width),
            f"{layer}.output": (sizes.width, sizes.width),
            f"{layer}.mlp_norm": (sizes.width,),
            f"{layer}.gate": (sizes.width, sizes.inner),
            f"{layer}.up": (sizes.width, sizes.inner),
            f"{layer}.down": (sizes.inner, sizes.width),
        }
    return {
        name: (
            rng.uniform(0.5, 1.5, shape)
            if len(shape) == 1
            else rng.standard_normal(shape) / np.sqrt(shape[0])
        ).astype(np.float32)
        for name, shape in shapes.items()
    }


def angle_tables(sizes: Sizes) -> tuple[Array, Array]:
    """Cosine and sine of (positions, half a head's width) angles."""
    half = sizes.head_width // 2
    angles = np.outer(np.arange(sizes.positions), 10000.0 ** (-np.arange(half) / half))
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


class Decoder:
    """The model on a device, with a cache of keys and values for each layer."""

    def __init__(self, sizes: Sizes, weights: dict[str, Array]) -> None:
        self.sizes = sizes
        self.weights = {name: ub.asarray(array) for name, array in weights.items()}
        self.cos, self.sin = map(ub.asarray, angle_tables(sizes))
        # Row p hides the positions after p.
        hidden = np.triu(np.full((sizes.positions,) * 2, -np.inf, np.float32), 1)
        self.masks = ub.asarray(hidden)
        shape = (1, sizes.kv_heads, sizes.positions, sizes.head_width)
        self.keys = [ub.zeros(shape) for _ in range(sizes.layers)]
        self.values = [ub.zeros(shape) for _ in range(sizes.layers)]

    def step(self, token: ub.DeviceTensor, position: ub.DeviceTensor) -> ub.DeviceTensor:
        """Return the logits after one token, which is written at its position in the caches.

        Token and position are each an i64 on the device, so no launch depends on their values.
        """
        x = ub.embedding(token, self.weights["table"])
        cos, sin = ub.take(self.cos, position), ub.take(self.sin, position)
        mask = ub.take(self.masks, position)
        for layer in range(self.sizes.layers):
            x = self.layer(layer, x, cos, sin, mask, position)
        return ub.rms_norm(x, self.weights["norm"], EPSILON) @ self.weights["head"]

    def layer(
        self,
        layer: int,
        x: ub.DeviceTensor,
        cos: ub.DeviceTensor,
        sin: ub.DeviceTensor,
        mask: ub.DeviceTensor,
        position: ub.DeviceTensor,
    ) -> ub.DeviceTensor:
        """Add attention and then the gated layers to the residual stream."""
        sizes = self.sizes

        def weight(name: str) -> ub.DeviceTensor:
            return self.weights[f"{layer}.{name}"]

        def heads(values: ub.DeviceTensor, count: int) -> ub.DeviceTensor:
            return values.reshape(1, count, 1, sizes.head_width)

        normed = ub.rms_norm(x, weight("attention_norm"), EPSILON)
        qkv = normed @ weight("qkv")
        query = ub.rope(heads(qkv[:, : sizes.width], sizes.heads), cos, sin)
        key = ub.rope(heads(qkv[:, sizes.width : -sizes.kv_width], sizes.kv_heads), cos, sin)
        value = heads(qkv[:, -sizes.kv_width :], sizes.kv_heads)
        ub.kv_append(self.keys[layer], key, position)
        ub.kv_append(self.values[layer], value, position)
        attended = ub.attention(query, self.keys[layer], self.values[layer], mask=mask)
        x = x + attended.reshape(1, sizes.width) @ weight("output")
        normed = ub.rms_norm(x, weight("mlp_norm"), EPSILON)
        inner = ub.silu_mul(normed @ weight("gate"), normed @ weight("up"))
        return x + inner @ weight("down")

    def forget(self) -> None:
        """Empty the caches."""
        for cache in (*self.keys, *self.values):
            cache.fill(0)


class Reference:
    """The same model in numpy, in double precision."""

    def __init__(self, sizes: Sizes, weights: dict[str, Array]) -> None:
        self.sizes = sizes
        self.weights = {name: array.astype(np.float64) for name, array in weights.items()}
        self.cos, self.sin = (table.astype(np.float64) for table in angle_tables(sizes))
        self.kept: list[tuple[list[Array], list[Array]]] = [([], []) for _ in range(sizes.layers)]

    def step(self, token: int, position: int) -> Array:
        """Return the logits after one token; positions come in order."""
        x = self.weights["table"][token]
        for layer, (keys, values) in enumerate(self.kept):
            own = {
                name.partition(".")[2]: array
                for name, array in self.weights.items()
                if name.startswith(f"{layer}.")
            }
            normed = norm(x, own["attention_norm"])
            ends = (self.sizes.width, self.sizes.width + self.sizes.kv_width)
            query, key, value = np.split(normed @ own["qkv"], ends)
            keys.append(self.turned(key, position))
            values.append(value.reshape(self.sizes.kv_heads, -1))
            query = self.turned(query, position)
            x = x + attention(query, np.stack(keys), np.stack(values)) @ own["output"]
            normed = norm(x, own["mlp_norm"])
            gate = normed @ own["gate"]
            x = x + gate / (1 + np.exp(-gate)) * (normed @ own["up"]) @ own["down"]
        return norm(x, self.weights["norm"]) @ self.weights["head"]

    def turned(self, x: Array, position: int) -> Array:
        """Return (heads, width) rotated by a position."""
        first, second = np.split(x.reshape(-1, self.sizes.head_width), 2, axis=1)
        cos, sin = self.cos[position], self.sin[position]
        return np.hstack([first * cos - second * sin, first * sin + second * cos])


def norm(x: Array, weight: Array) -> Array:
    result: Array = x / np.sqrt((x * x).mean() + EPSILON) * weight
    return result


def attention(query: Array, keys: Array, values: Array) -> Array:
    """Attend with queries (heads, width) to (positions, kv heads, width); concatenate all heads."""
    shared = len(query) // keys.shape[1]
    keys, values = np.repeat(keys, shared, 1), np.repeat(values, shared, 1)
    scores = np.einsum("hw,phw->hp", query, keys) / np.sqrt(query.shape[1])
    powers = np.exp(scores - scores.max(1, keepdims=True))
    weighed: Array = np.einsum("hp,phw->hw", powers / powers.sum(1, keepdims=True), values)
    return weighed.reshape(-1)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(argv)
    try:
        return run(options)
    except (DeviceError, MemoryError, OSError) as error:
        print(error, file=sys.stderr)
        return 3


def run(options: argparse.Namespace) -> int:
    device = Api.quick_init(options.device, backend=options.backend)
    print(f"{device.backend}:{device.ordinal} {device.name}, seed {options.seed}")
    rng = np.random.default_rng(options.seed)
    sizes = Sizes(layers=options.layers, positions=options.positions)
    weights = random_weights(sizes, rng)
    tokens = [int(token) for token in rng.integers(0, sizes.vocabulary, sizes.positions)]
    reference = Reference(sizes, weights)
    expected = np.stack([reference.step(token, position) for position, token in enumerate(tokens)])

    decoder = Decoder(sizes, weights)
    with ub.trace() as graph:
        token = graph.scalar("token", 0, low=0, high=sizes.vocabulary - 1)
        position = graph.scalar("pos", 0, low=0, high=sizes.positions - 1)
        logits = decoder.step(token, position)
    memory = graph.memory
    print(
        f"{graph.n_ops} operations; {memory.peak_bytes} bytes for results instead of "
        f"{memory.unplanned_bytes} ({memory.ratio:.2f})"
    )

    def generated(step: Callable[..., object]) -> Array:
        decoder.forget()
        device.synchronize()
        rows = []
        for position, one in enumerate(tokens):
            step(token=one, pos=position)
            rows.append(logits.to_numpy()[0])
        return np.stack(rows)

    eager = generated(lambda **slots: ub.execute_graph(graph, **slots))
    error = float(np.max(np.abs(eager - expected)) / np.max(np.abs(expected)))
    print(f"executed: error {error:.1e} of the largest logit over {len(tokens)} positions")
    with Stream(device=device) as stream, graph.instantiate(stream) as plan:
        several = {node: count for node, count in plan.launches.items() if count != 1}
        print(f"captured: {sum(plan.launches.values())} launches", end="")
        print(f", more than one for {len(several)} operations" if several else "")
        replayed = generated(plan.replay)
        verified = bool(plan.verify(token=tokens[-1], pos=len(tokens) - 1))
    same = np.array_equal(eager.view(np.uint32), replayed.view(np.uint32)) and verified
    print(f"replayed: {'the same' if same else 'other'} bits")
    return 0 if error <= TOLERANCE and same else 1


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="graph_decoder", description=(__doc__ or "").partition("\n")[0]
    )
    option = parser.add_argument
    option("--backend", metavar="NAME", help="cuda, rocm, tops, host; default: the first with one")
    option("--device", type=int, default=0, metavar="I", help="ordinal of the device (default 0)")
    option("--layers", type=int, default=28, metavar="N", help="layers of the model (default 28)")
    option("--positions", type=int, default=32, metavar="N", help="tokens to run (default 32)")
    option("--seed", type=int, metavar="S", help="seed of the weights; by default a fresh one")
    options = parser.parse_args(argv)
    if options.seed is None:
        options.seed = int(np.random.SeedSequence().generate_state(1)[0])
    return options


if __name__ == "__main__":
    sys.exit(main())

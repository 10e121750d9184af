"""Run each part of a LLaMA layer on any device and compare it with numpy in double precision.

Weights are random, or a model's: `--local-weights DIR` takes the first layer of a folder from
Hugging Face (`config.json` beside `*.safetensors`) and needs the package safetensors.

Every operand is rounded to `--dtype` first, and numpy computes from the device's values. The
largest error of a part, relative to its largest value, is at most 1e-5 (f32), 2e-3 (f16) or 1.6e-2
(bf16). The limit is 1e-6 for an f32 softmax, and 0 for parts that only move elements.

Exit status: 0 all parts are right, 1 a part is wrong, 2 a wrong option, 3 no device computed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
from llama_layer import (
    Array,
    Model,
    Reference,
    WeightsError,
    attended_to,
    causal_mask,
    local_weights,
    random_weights,
    reference_layer,
    rope_tables,
    rotated,
    scaled_to_one,
    shares,
)

import ubridge as ub
from ubridge import DeviceTensor
from uhal import Api, Device
from uhal.errors import DeviceError

TOLERANCE = {"f32": 1e-5, "f16": 2e-3, "bf16": 1.6e-2}
SOFTMAX_TOLERANCE = 1e-6
BATCH, POSITIONS, CACHED = 2, 7, 5
"""Sequences, tokens of each, and tokens whose keys and values are kept from before."""


class Operand(NamedTuple):
    """The same elements on the device and in numpy."""

    tensor: DeviceTensor
    exact: Reference


class Result(NamedTuple):
    """The device's result and numpy's; `tolerance` None takes the dtype's."""

    what: str
    got: DeviceTensor
    expected: Reference
    tolerance: float | None = None


class Layer:
    """A LLaMA layer's weights on a device, and operands drawn for it."""

    def __init__(
        self, model: Model, weights: dict[str, Array], device: Device, dtype: str, seed: int
    ) -> None:
        self.model, self.device, self.dtype = model, device, dtype
        self._weights = weights
        # A second generator, because the generator of the weights would draw the same numbers
        # again.
        self._generator = np.random.default_rng((seed, 1))

    def uploaded(self, values: Array) -> Operand:
        """The values rounded to the dtype."""
        tensor = ub.from_numpy(values.astype(np.float32), device=self.device).astype(self.dtype)
        return Operand(tensor, fetched(tensor))

    def drawn(self, *shape: int) -> Operand:
        """Normally distributed elements."""
        return self.uploaded(self._generator.standard_normal(shape))

    def ids(self, *shape: int) -> Array:
        """Tokens of the vocabulary."""
        return self._generator.integers(0, self.model.vocabulary, shape)

    def weight(self, name: str) -> Operand:
        """One of the layer's weights."""
        return self.uploaded(self._weights[name])

    @cached_property
    def angles(self) -> tuple[Operand, Operand]:
        """Cosines and sines for each position, the cache's first."""
        cos, sin = rope_tables(self.model, CACHED + POSITIONS)
        return self.uploaded(cos), self.uploaded(sin)


# -- the parts, in the order they are tested -----------------------------------------------------


def cache(layer: Layer) -> Iterator[Result]:
    """Tables of the rotary embedding, the causal mask, and keys appended to the cached keys."""
    model, device = layer.model, layer.device
    count = CACHED + POSITIONS
    steps = model.rope.steps(model.width).astype(np.float32)
    positions = ub.arange(count, dtype="f32", device=device).expand_dims(1)
    angles = positions * ub.from_numpy(steps, device=device)
    exact = np.arange(count)[:, None] * steps.astype(np.float64)
    yield Result("cosines", ub.cos(angles).astype(layer.dtype), np.cos(exact))
    yield Result("sines", ub.sin(angles).astype(layer.dtype), np.sin(exact))
    queries = ub.arange(POSITIONS, dtype="f32", device=device).expand_dims(1) + CACHED
    hidden = ub.arange(count, dtype="f32", device=device) > queries
    yield Result("causal mask", hidden, causal_mask(POSITIONS, count).astype(np.float64), 0)
    kept, *added = (
        layer.drawn(BATCH, model.kv_heads, tokens, model.width) for tokens in (CACHED, POSITIONS, 1)
    )
    keys, expected = kept
    for tokens in added:
        keys = ub.kv_concat(keys, tokens.tensor, 2)
        expected = np.concatenate((expected, tokens.exact), 2)
        yield Result("appended keys", keys, expected, 0)


def cast(layer: Layer) -> Iterator[Result]:
    """Cast elements to each dtype."""
    given = layer.drawn(BATCH, POSITIONS, layer.model.hidden)
    for dtype, tolerance in TOLERANCE.items():
        to = given.tensor.astype(dtype)
        yield Result(f"to {dtype}", to, given.exact, max(tolerance, TOLERANCE[layer.dtype]))
        yield Result(f"{dtype} and back", to.astype(layer.dtype), fetched(to))


def embedding(layer: Layer) -> Iterator[Result]:
    """Rows of a table by tokens."""
    table = layer.weight("embed_tokens")
    ids = layer.ids(BATCH, POSITIONS)
    yield Result("ids of the host", ub.embedding(ids, table.tensor), table.exact[ids], 0)
    on_device = ub.from_numpy(ids.astype(np.uint32), device=layer.device)
    yield Result("ids on the device", ub.embedding(on_device, table.tensor), table.exact[ids], 0)


def softmax(layer: Layer) -> Iterator[Result]:
    """Softmax of rows, and of columns."""
    given = layer.drawn(BATCH, layer.model.heads, POSITIONS, CACHED + POSITIONS)
    absolute = SOFTMAX_TOLERANCE / shares(given.exact).max() if layer.dtype == "f32" else None
    yield Result("rows", ub.softmax(given.tensor), shares(given.exact), absolute)
    turned = shares(given.exact.swapaxes(1, 3)).swapaxes(1, 3)
    absolute = SOFTMAX_TOLERANCE / turned.max() if layer.dtype == "f32" else None
    yield Result("axis 1", ub.softmax(given.tensor, 1), turned, absolute)


def rmsnorm(layer: Layer) -> Iterator[Result]:
    """Rows scaled to unit size."""
    x = layer.drawn(BATCH, POSITIONS, layer.model.hidden)
    weight = layer.weight("input_layernorm")
    got = ub.rms_norm(x.tensor, weight.tensor, layer.model.epsilon)
    yield Result("rows", got, scaled_to_one(x.exact, weight.exact, layer.model.epsilon))


def maskfill(layer: Layer) -> Iterator[Result]:
    """Scores of keys that are not seen yet."""
    count = CACHED + POSITIONS
    scores = layer.drawn(BATCH, layer.model.heads, POSITIONS, count)
    mask = causal_mask(POSITIONS, count)
    hidden = ub.from_numpy(mask, device=layer.device)
    for value in (-np.inf, 0.5):
        got = ub.masked_fill(scores.tensor, hidden, float(value))
        yield Result(f"with {value}", got, np.where(mask, value, scores.exact), 0)


def concat(layer: Layer) -> Iterator[Result]:
    """Tensors joined along each axis."""
    shape = (BATCH, layer.model.kv_heads, POSITIONS, layer.model.width)
    for axis in range(4):
        one = layer.drawn(*shape)
        other = layer.drawn(*shape[:axis], 3, *shape[axis + 1 :])
        expected = np.concatenate((one.exact, other.exact), axis)
        joined = ub.kv_concat(one.tensor, other.tensor, axis)
        yield Result(f"two along axis {axis}", joined, expected, 0)
        three = ub.cat([one.tensor, other.tensor, other.tensor], axis)
        expected = np.concatenate((expected, other.exact), axis)
        yield Result(f"three along axis {axis}", three, expected, 0)


def matmul(layer: Layer) -> Iterator[Result]:
    """Products with a weight, of heads by heads, and with keys that lie transposed."""
    model = layer.model
    x = layer.drawn(BATCH, POSITIONS, model.hidden)
    weight = layer.weight("mlp.up_proj")
    yield Result("weight", x.tensor @ weight.tensor.mT, x.exact @ weight.exact.T)
    queries = layer.drawn(BATCH, model.heads, POSITIONS, model.width)
    keys = layer.drawn(BATCH, model.heads, CACHED, model.width)
    expected = queries.exact @ keys.exact.swapaxes(-1, -2)
    yield Result("heads", queries.tensor @ keys.tensor.mT, expected)
    contiguous = keys.tensor.mT.contiguous()
    yield Result("heads in order", queries.tensor @ contiguous, expected)


def block(layer: Layer) -> Iterator[Result]:
    """The whole layer: norm, attention, sum, norm, gated products, sum."""
    model = layer.model
    x = layer.drawn(BATCH, POSITIONS, model.hidden)
    weights = {name: layer.weight(name) for name in model.shapes if name != "embed_tokens"}
    tensors = {name: one.tensor for name, one in weights.items()}
    exacts = {name: one.exact for name, one in weights.items()}
    shape = (BATCH, model.kv_heads, CACHED, model.width)
    kept_keys, kept_values = layer.drawn(*shape), layer.drawn(*shape)
    cos, sin = (one.tensor[CACHED:] for one in layer.angles)

    normed = ub.rms_norm(x.tensor, tensors["input_layernorm"], model.epsilon)
    query, key, value = (
        (normed @ tensors[f"self_attn.{part}_proj"].mT)
        .reshape(BATCH, POSITIONS, -1, model.width)
        .swapaxes(1, 2)
        for part in "qkv"
    )
    keys = ub.kv_concat(kept_keys.tensor, ub.rope(key, cos, sin), 2)
    values = ub.kv_concat(kept_values.tensor, value, 2)
    heads = ub.attention(ub.rope(query, cos, sin), keys, values, causal=True)
    joined = heads.swapaxes(1, 2).reshape(BATCH, POSITIONS, model.across)
    attended = x.tensor + joined @ tensors["self_attn.o_proj"].mT

    normed = ub.rms_norm(attended, tensors["post_attention_layernorm"], model.epsilon)
    gate, up = (normed @ tensors[f"mlp.{part}_proj"].mT for part in ("gate", "up"))
    result = attended + ub.silu_mul(gate, up) @ tensors["mlp.down_proj"].mT

    kept = (kept_keys.exact, kept_values.exact)
    angles = tuple(one.exact[CACHED:] for one in layer.angles)
    after_attention, expected = reference_layer(model, exacts, x.exact, kept, angles)
    yield Result("after attention", attended, after_attention)
    yield Result("result", result, expected)


def attention(layer: Layer) -> Iterator[Result]:
    """Queries over cached and new keys with shared heads: all keys, visible keys, masked."""
    model = layer.model
    count = CACHED + POSITIONS
    query = layer.drawn(BATCH, model.heads, POSITIONS, model.width)
    key, value = (layer.drawn(BATCH, model.kv_heads, count, model.width) for _ in range(2))
    mask = layer.drawn(POSITIONS, count)
    operands = (query.tensor, key.tensor, value.tensor)
    exacts = (query.exact, key.exact, value.exact)
    causal = np.where(causal_mask(POSITIONS, count), -np.inf, 0)
    yield Result("all keys", ub.attention(*operands), attended_to(*exacts, np.zeros(1)))
    yield Result("causal", ub.attention(*operands, causal=True), attended_to(*exacts, causal))
    masked = ub.attention(*operands, mask=mask.tensor)
    yield Result("masked", masked, attended_to(*exacts, mask.exact))


def narrow(layer: Layer) -> Iterator[Result]:
    """Views of a part of each axis, copied to row-major order."""
    x = layer.drawn(BATCH, layer.model.heads, POSITIONS, layer.model.width)
    for axis, length in enumerate(x.exact.shape):
        part = x.tensor.narrow(axis, 1, length - 1)
        expected = np.take(x.exact, range(1, length), axis)
        yield Result(f"axis {axis}", part.contiguous(), expected, 0)


def rotary_embedding(layer: Layer) -> Iterator[Result]:
    """Pairs of elements rotated by their position: half a width apart, neighbors, heads last."""
    model = layer.model
    x = layer.drawn(BATCH, model.heads, POSITIONS, model.width)
    cos, sin = (Operand(one.tensor[CACHED:], one.exact[CACHED:]) for one in layer.angles)
    halves = rotated(x.exact, cos.exact, sin.exact)
    yield Result("halves", ub.rope(x.tensor, cos.tensor, sin.tensor), halves)
    got = ub.rope(x.tensor, cos.tensor, sin.tensor, interleaved=True)
    yield Result("neighbors", got, rotated(x.exact, cos.exact, sin.exact, interleaved=True))
    heads_last = x.tensor.swapaxes(1, 2).contiguous()
    got = ub.rope(heads_last, cos.tensor, sin.tensor, heads_last=True)
    yield Result("heads last", got, halves.swapaxes(1, 2))


COMPONENTS: dict[str, Callable[[Layer], Iterator[Result]]] = {
    part.__name__: part
    for part in (
        *(cache, cast, embedding, softmax, rmsnorm, maskfill, concat, matmul, block, attention),
        *(narrow, rotary_embedding),
    )
}


# -- the program ---------------------------------------------------------------------------------


def fetched(tensor: DeviceTensor) -> Reference:
    """The elements in double precision; f16 and bf16 are cast to f32 first, which is exact."""
    wide = tensor if tensor.dtype.kind == "bool" else tensor.astype("f32")
    return wide.to_numpy().astype(np.float64)


def error_of(result: Result) -> float:
    """The largest error, relative to the largest expected value; infinities must be equal."""
    got, expected = fetched(result.got), result.expected
    if got.shape != expected.shape:
        return float("inf")
    finite = np.isfinite(expected)
    if not np.array_equal(got[~finite], expected[~finite]):
        return float("inf")
    difference = np.abs(got[finite] - expected[finite]).max(initial=0)
    largest = np.abs(expected[finite]).max(initial=0)
    # A NaN is not within any tolerance.
    return float(difference / largest if largest else difference)


def passes(name: str, layer: Layer) -> bool:
    """Test a part and print the result."""
    worst, right = 0.0, True
    for result in COMPONENTS[name](layer):
        most = TOLERANCE[layer.dtype] if result.tolerance is None else result.tolerance
        error = error_of(result)
        worst = max(worst, error)
        if not error <= most:
            right = False
            print(
                f"Test {name} FAILED: {result.what}: error {error:.1e} of the largest value, at "
                f"most {most:.1e} is rounding",
                file=sys.stderr,
            )
    if right:
        print(f"Test {name} passed! (error {worst:.1e} of the largest value)")
    return right


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="component_test", description=(__doc__ or "").partition("\n")[0]
    )
    option = parser.add_argument
    option("parts", nargs="*", metavar="PART", help=f"default: all of {', '.join(COMPONENTS)}")
    option("--backend", metavar="NAME", help="cuda, rocm, tops, host; default: the first with one")
    option("--device", type=int, default=0, metavar="I", help="ordinal of the device (default 0)")
    option("--dtype", choices=TOLERANCE, default="f32", help="elements' type (default f32)")
    option("--seed", type=int, metavar="S", help="of what is drawn; by default a fresh one")
    option("--local-weights", type=Path, metavar="DIR", help="a model's folder, for its weights")
    options = parser.parse_args(argv)
    for name in options.parts:
        if name not in COMPONENTS:
            parser.error(f"no part {name!r}; there are {', '.join(COMPONENTS)}")
    if options.seed is None:
        options.seed = int(np.random.SeedSequence().generate_state(1)[0])
    if options.seed < 0:
        parser.error(f"--seed {options.seed}: a seed is not negative")
    return options


def run(options: argparse.Namespace) -> int:
    device = Api.quick_init(options.device, backend=options.backend)
    if options.local_weights is None:
        model, origin = Model(), "random weights"
        weights = random_weights(model, options.seed)
    else:
        model, weights = local_weights(options.local_weights)
        origin = f"weights of {options.local_weights}"
    print(f"{device.backend}:{device.ordinal} {device.name}")
    print(f"{options.dtype}, {origin}: --seed {options.seed}")
    layer = Layer(model, weights, device, options.dtype, options.seed)
    names = options.parts or list(COMPONENTS)
    right = [passes(name, layer) for name in names]
    print(f"{sum(right)} of {len(right)} passed.")
    return 0 if all(right) else 1


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(argv)
    try:
        return run(options)
    except (DeviceError, MemoryError, OSError, WeightsError) as error:
        print(error, file=sys.stderr)
        return 3


if __name__ == "__main__":
    sys.exit(main())

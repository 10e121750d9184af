"""A job of ranks that hold a model's shares: compared with the whole model, read by rank 0.

mpirun -n RANKS python -m tests.collectives.sharded_models SEED MODEL OPTIONS [MODEL OPTIONS …]

OPTIONS are the options of `Model.load` in JSON, and `bound`: the largest difference between a logit
and the whole model's logit, relative to the largest logit. With `error`: the largest ratio of two
errors of a llama's logits, the ranks' error and the whole model's error.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import numpy.typing as npt

import ubridge as ub
import uhal
from ubridge.models import Model
from uhal.collectives import Communicator, Place, share, unique_id

PROMPT, STEPS = 20, 12


def logits(model: Model, tokens: list[int]) -> npt.NDArray[np.float32]:
    """Return the logits of a prompt, and then of one token after the other."""
    cache = model.cache()
    rows = [model.logits(tokens[:PROMPT], cache, every=True).to_numpy()]
    rows += [model.logits([one], cache).to_numpy()[None] for one in tokens[PROMPT:]]
    return np.concatenate(rows)


def in_double(model: Model, tokens: list[int]) -> npt.NDArray[np.float64]:
    """Return the logits of a llama with the model's weights, in double precision."""
    body: Any = model._body
    design, count = body.design, len(tokens)

    def matrix(part: Any, name: str) -> npt.NDArray[np.float64]:
        weight = part[f"{name}.weight"]
        dense = weight.dequantize() if isinstance(weight, ub.QuantizedWeight) else weight
        return np.asarray(dense.astype("f8").to_numpy())

    def normed(x: Any, part: Any, name: str) -> Any:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + design.epsilon) * matrix(part, name)

    tables = body.tables(count)
    cos, sin = (one.to_numpy().astype("f8")[:count, None] for one in (tables.cos, tables.sin))

    def rotated(x: Any) -> Any:
        low, high = np.split(x, 2, -1)
        return np.concatenate([low * cos - high * sin, high * cos + low * sin], -1)

    x = matrix(body._outside, "embedding")[tokens]
    later = np.triu(np.full((count, count), -np.inf), 1)
    for part in body._layers:
        h = normed(x, part, "attention_norm")
        query, key, value = (
            (h @ matrix(part, name).T).reshape(count, -1, design.width) for name in "qkv"
        )
        query, key = rotated(query), rotated(key)
        key, value = (np.repeat(one, design.heads // design.kv_heads, 1) for one in (key, value))
        scores = np.einsum("qhd,khd->hqk", query, key) * design.scale + later
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        x = (
            x
            + np.einsum("hqk,khd->qhd", shares, value).reshape(count, -1) @ matrix(part, "output").T
        )
        h = normed(x, part, "mlp_norm")
        gate = h @ matrix(part, "gate").T
        inner = gate / (1 + np.exp(-gate)) * (h @ matrix(part, "up").T)
        x = x + inner @ matrix(part, "down").T
    return np.asarray(normed(x, body._outside, "norm") @ matrix(body._outside, "head").T)


def error(found: npt.NDArray[Any], exact: npt.NDArray[np.float64]) -> float:
    return float(np.sqrt(((found - exact) ** 2).mean()))


def weights_of(model: Model) -> int:
    body: Any = model._body
    parts = [body._outside, *body._layers]
    # A tied head is a part of the embedding.
    tied = body.design.is_tied
    return sum(
        weight.nbytes
        for part in parts
        for name, weight in part.items()
        if not (tied and name == "head.weight")
    )


def main() -> None:
    seed = int(sys.argv[1])
    uhal.Api.quick_init(0, "host")
    place = Place.of()
    group = Communicator(place.ranks, share(unique_id()), place.rank)
    rng = np.random.default_rng(seed)
    for path, text in zip(sys.argv[2::2], sys.argv[3::2], strict=True):
        options = json.loads(text)
        bound, times = options.pop("bound"), options.pop("error", None)
        model = Model.load(path, group=group, **options)
        ids = [int(one) for one in rng.integers(0, model.vocabulary, PROMPT + STEPS)]
        found = logits(model, ids)
        own = weights_of(model)
        group.wait(60)
        if place.rank == 0:
            whole = Model.load(path, **options)
            expected = logits(whole, ids)
            difference = abs(found - expected).max() / abs(expected).max()
            part = own / weights_of(whole)
            print(f"{path} {text}: difference {difference:.2g}, {part:.3f} of the weights")
            assert difference <= bound, (path, difference)
            if times is not None:
                exact = in_double(whole, ids)
                of_ranks, one = error(found, exact), error(expected, exact)
                print(f"errors: ranks {of_ranks:.3g}, one {one:.3g}: {of_ranks / one:.3f} times")
                assert of_ranks <= times * one, (path, of_ranks, one)
            if "stories260K" in path and not options:
                alone = whole.generate("Once upon a time", max_tokens=60).read()
        if "stories260K" in path and not options:
            text = model.generate("Once upon a time", max_tokens=60).read()
            assert place.rank or text == alone, (text, alone)
    group.barrier()
    group.wait(60)
    group.close()
    print(f"rank {place.rank}: all models are right", flush=True)


if __name__ == "__main__":
    main()

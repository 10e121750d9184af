"""A job of ranks whose rank 0 runs engines of a model that the ranks share.

mpirun -n RANKS python -m tests.collectives.sharded_engine SEED MODEL OPTIONS [MODEL OPTIONS …]

OPTIONS are the options of `Model.load` in JSON, and `equal`: whether the tokens are the whole
model's.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import cast

import numpy as np

import ubridge as ub
import uhal
from ubridge.models import Engine, Model
from ubridge.models.sharding import ShardedDecoder
from uhal.collectives import Communicator, Place, share, unique_id
from uhal.errors import InvalidHandleError, NotSupportedError

TOKENS = 6
Texts = list[list[int]]


def batched(model: Model, texts: Texts) -> bytes:
    """Return the logits of the texts' tokens, read together, a token of each text at a time."""
    paged = model.paged(64, 4, len(texts), 64)
    sequences = [paged.cache.allocate(text) for text in texts]
    found: list[list[bytes]] = [[] for _ in texts]
    for at in range(max(map(len, texts))):
        rows = [index for index, text in enumerate(texts) if at < len(text)]
        for row in rows:
            paged.copy_pages(paged.cache.append(sequences[row], [texts[row][at]]))
        parts = [(sequences[row], at) for row in rows]
        logits = paged.logits(parts, range(len(rows))).to_numpy()
        for row, one in zip(rows, logits, strict=True):
            found[row].append(one.tobytes())
        for row in rows:
            paged.cache.wrote(sequences[row])
    paged.close()
    return b"".join(one for rows in found for one in rows)


def answered(model: Model, prompts: Texts) -> Texts:
    """Return the tokens after the prompts, by an engine with too few pages for all prompts."""
    with Engine(model, pages=10, page_size=4, sequences=2, step_tokens=8, context=32) as engine:
        requests = [engine.submit(one, max_tokens=TOKENS, ignore_end=True) for one in prompts]
        copy = engine.fork(requests[0], max_tokens=TOKENS, ignore_end=True)
        for one in (*requests, copy):
            one.read()
    return [one.tokens for one in (*requests, copy)]


def sums_are_invariant(model: Model, rng: np.random.Generator) -> None:
    """Check that a row's sum over the ranks has the same bits alone and among many rows."""
    body = cast("ShardedDecoder", cast("ShardedDecoder", model._body).batch_invariant())
    values = rng.standard_normal((1 << 10, 64)).astype("f4")
    whole = body._summed(ub.asarray(values)).to_numpy()
    for row in (0, 513, 1023):
        assert body._summed(ub.asarray(values[row : row + 1])).to_numpy()[0].tobytes() == (
            whole[row].tobytes()
        )


def other_ranks_calls_are_refused(model: Model, rank: int) -> None:
    calls: tuple[Callable[[], object], ...] = (
        model.follow if rank == 0 else lambda: Engine(model),
        lambda: model.generate([[3], [4]]),
    )
    for call in calls:
        try:
            call()
        except NotSupportedError as error:
            assert "Model.follow" in str(error), error
        else:
            raise AssertionError(call)


def lead(model: Model, path: str, options: dict[str, object], rng: np.random.Generator) -> None:
    texts = [
        [int(one) for one in rng.integers(3, model.vocabulary, length)]
        for length in rng.permutation([3, 8, 14])
    ]
    together = batched(model, texts)
    alone = b"".join(batched(model, [text]) for text in texts)
    assert together == alone, "a batch has other bits than its texts alone"
    found = answered(model, texts)
    apart = [tokens for text in texts for tokens in answered(model, [text])[:1]]
    assert found[:-1] == apart, (found, apart)
    is_equal = options.pop("equal")
    if is_equal:
        assert found == answered(Model.load(path, **options), texts)  # type: ignore[arg-type]
    with Engine(model) as engine:
        for wrong in (
            lambda: model.generate([3]).read(),
            lambda: Engine(model),
        ):
            try:
                wrong()
            except InvalidHandleError as error:
                assert "expected no open engine of this model" in str(error)
            else:
                raise AssertionError(wrong)
        assert engine.stats().steps == 0


def main() -> None:
    seed = int(sys.argv[1])
    uhal.Api.quick_init(0, "host")
    place = Place.of()
    group = Communicator(place.ranks, share(unique_id()), place.rank)
    rng = np.random.default_rng(seed)
    for path, text in zip(sys.argv[2::2], sys.argv[3::2], strict=True):
        options = json.loads(text)
        own = {name: one for name, one in options.items() if name != "equal"}
        model = Model.load(path, group=group, **own)
        other_ranks_calls_are_refused(model, place.rank)
        sums_are_invariant(model, np.random.default_rng((seed, place.rank)))
        if place.rank == 0:
            lead(model, path, options, rng)
            print(f"{path} {text}: right", flush=True)
        else:
            # Rank 0 makes this number of engines: for batches together and alone, for texts
            # together and alone, and the last one.
            for _ in range(2 * (1 + 3) + 1):
                model.follow()
    group.barrier()
    group.wait(60)
    group.close()
    print(f"rank {place.rank}: all engines are right", flush=True)


if __name__ == "__main__":
    main()

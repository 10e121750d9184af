"""A job of ranks that hold a model's shares: compared with the whole model, read by rank 0.

mpirun -n RANKS python -m tests.collectives.sharded_models SEED MODEL OPTIONS [MODEL OPTIONS …]

OPTIONS are the options of `Model.load` in JSON, and `bound`: the largest difference between a logit
and the whole model's logit, relative to the largest logit.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import numpy.typing as npt

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
        bound = options.pop("bound")
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

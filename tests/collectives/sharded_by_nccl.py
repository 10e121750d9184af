"""Threads are ranks on simulated CUDA devices. Each holds a share of a model and calls the
simulated NCCL.

python -m tests.collectives.sharded_by_nccl SEED MODEL, with the simulated libraries' variables
"""

from __future__ import annotations

import sys
import threading

import numpy as np

import uhal
from tests.collectives.sharded_models import logits
from ubridge.models import Model
from uhal.collectives import Communicator, unique_id

RANKS = 2


def main() -> None:
    seed, path = int(sys.argv[1]), sys.argv[2]
    devices = [uhal.Device(at, "cuda") for at in range(RANKS)]
    with devices[0]:
        identifier = unique_id()
    whole = Model.load(path, device=devices[0])
    ids = [int(one) for one in np.random.default_rng(seed).integers(0, whole.vocabulary, 24)]
    expected = logits(whole, ids)
    found: dict[int, np.ndarray] = {}

    def work(rank: int) -> None:
        with devices[rank]:
            group = Communicator(RANKS, identifier, rank)
            found[rank] = logits(Model.load(path, device=devices[rank], group=group), ids)
            group.check()

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(RANKS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[0].tobytes() == found[1].tobytes()
    difference = abs(found[0] - expected).max() / abs(expected).max()
    assert difference <= 1e-5, difference
    print(f"difference {difference:.2g}")


if __name__ == "__main__":
    main()

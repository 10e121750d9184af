"""A rank of `benchmarks/collectives.py`: prints its measurements as JSON on rank 0.

With torch alone (`gloo`), or under mpirun: `sums` and `decode MODEL`.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

SIZES = (4 << 10, 64 << 10, 1 << 20)
IN_A_ROW = 50


def microseconds(call: Callable[[], object], calls: int) -> float:
    """Return the time of one call."""
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - begin) / calls * 1e6


def sums(rounds: int) -> dict[str, Any]:
    """Time sums of f32 by plain MPI, and by a communicator's calls and replays, in turns."""
    import numpy as np
    from mpi4py import MPI

    import uhal
    from uhal import DeviceBuffer, Stream
    from uhal.collectives import Communicator, Place, share, unique_id

    own = Place.of()
    uhal.Api.quick_init(0, "host")
    group = Communicator(own.ranks, share(unique_id()), own.rank)
    stream, found = Stream(), {}
    for nbytes in SIZES:
        array, x = np.zeros(nbytes // 4, "f4"), DeviceBuffer.zeros(nbytes // 4, "f4")
        with stream.capture() as plan:
            for _ in range(IN_A_ROW):
                group.all_reduce(x, stream=stream)

        def plain(array: Any = array) -> None:
            MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, array)

        def called(x: DeviceBuffer = x) -> None:
            group.all_reduce(x, stream=stream)

        def waited(x: DeviceBuffer = x) -> None:
            group.all_reduce(x, stream=stream)
            stream.synchronize()

        def called_in_a_row(called: Callable[[], None] = called) -> None:
            for _ in range(IN_A_ROW):
                called()
            stream.synchronize()

        def replayed(plan: Any = plan) -> None:
            plan.replay(stream)
            stream.synchronize()

        rows: dict[str, list[float]] = {}
        for _ in range(rounds):
            for name, call, calls, each in (
                ("MPI", plain, IN_A_ROW, 1),
                ("replayed", replayed, 1, IN_A_ROW),
                ("called", called_in_a_row, 1, IN_A_ROW),
                ("waited", waited, IN_A_ROW, 1),
            ):
                MPI.COMM_WORLD.Barrier()
                rows.setdefault(name, []).append(microseconds(call, calls) / each)
        over = [one - two for one, two in zip(rows["replayed"], rows["MPI"], strict=True)]
        found[str(nbytes)] = {
            **{name: statistics.median(times) for name, times in rows.items()},
            "over MPI": statistics.median(over),
        }
        plan.close()
    group.close()
    return found if own.rank == 0 else {}


def gloo(rounds: int) -> dict[str, Any]:
    """Time torch's gloo over the loopback interface."""
    import torch
    from torch import distributed

    distributed.init_process_group("gloo")
    found = {}
    for nbytes in SIZES:
        x = torch.zeros(nbytes // 4)
        times = []
        for _ in range(rounds):
            distributed.barrier()
            times.append(microseconds(lambda x=x: distributed.all_reduce(x), IN_A_ROW))  # type: ignore[misc]
        found[str(nbytes)] = statistics.median(times)
    is_first = distributed.get_rank() == 0
    distributed.destroy_process_group()
    return found if is_first else {}


def decode(rounds: int, path: str) -> dict[str, Any]:
    """Time tokens of rank 0 with the whole model, and of all ranks with their shares, in turns."""
    import uhal
    from ubridge.models import Model
    from uhal.collectives import Communicator, Place, share, unique_id

    tokens = 8
    own = Place.of()
    uhal.Api.quick_init(0, "host")
    group = Communicator(own.ranks, share(unique_id()), own.rank)
    together = Model.load(path, quantize="q4_0", group=group)
    models = {"ranks": together}
    if own.rank == 0:
        models["one rank"] = Model.load(path, quantize="q4_0")
    caches = {name: model.cache(tokens * (rounds + 1) + 1) for name, model in models.items()}
    times: dict[str, list[float]] = {name: [] for name in models}
    for turn in range(rounds + 1):
        for name in ("one rank", "ranks"):
            group.barrier()
            group.wait(600)
            if name not in models:
                continue
            model, cache = models[name], caches[name]

            def token(model: Model = model, cache: Any = cache) -> None:
                model.logits([1], cache).to_numpy()

            taken = microseconds(token, tokens)
            if turn:  # the first captures
                times[name].append(taken)
    group.barrier()
    group.wait(600)
    group.close()
    if own.rank:
        return {}
    ratios = [one / two for one, two in zip(times["one rank"], times["ranks"], strict=True)]
    return {
        **{name: statistics.median(rows) for name, rows in times.items()},
        "faster": statistics.median(ratios),
    }


if __name__ == "__main__":
    which = {"sums": sums, "gloo": gloo, "decode": decode}[sys.argv[1]]
    result = which(int(sys.argv[2]), *sys.argv[3:])
    if result:
        print(json.dumps(result), flush=True)

"""Ranks as threads on simulated CUDA devices: every collective by NCCL's interface, against numpy.

python -m tests.collectives.over_nccl SEED, with the variables of the simulated libraries
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

import numpy as np

import uhal
from tests.collectives.every_collective import OPERATIONS, POISON, reduced, values
from uhal import DeviceBuffer, Stream
from uhal.collectives import Communicator, group, unique_id

DTYPES = "i8 u8 i32 u32 i64 u64 f16 bf16 f32 f64".split()
SIZES = (0, 1, 33)
RANKS = 2


class Rank:
    """A rank, its streams, and calls into poisoned memory."""

    def __init__(self, communicator: Communicator, rank: int) -> None:
        self.communicator, self.rank = communicator, rank
        self.stream = Stream()

    def run(
        self,
        call: Callable[[DeviceBuffer, DeviceBuffer], None],
        operand: np.ndarray,
        size: int,
        replayed: bool,
    ) -> np.ndarray:
        send = DeviceBuffer.from_numpy(operand)
        recv = DeviceBuffer.uninitialized(size, operand.dtype)
        recv.view("u8").set_8(POISON, stream=self.stream) if size else None
        self.stream.synchronize()
        if replayed:
            with self.stream.capture() as plan:
                call(send, recv)
            for _ in range(3):
                plan.replay(self.stream)
        else:
            call(send, recv)
        self.communicator.wait(60, self.stream)
        result = recv.to_numpy(stream=self.stream)
        if replayed:
            plan.close()
        return result


def every(job: Rank, dtype: str, size: int, replayed: bool, seed: int) -> list[np.ndarray]:
    """Check each collective; return the results that all ranks must have in common."""
    rank, communicator, stream = job.rank, job.communicator, job.stream
    whole = values(seed, dtype, size * RANKS, RANKS)
    small = [one[:size] for one in whole]
    mine = slice(rank * size, (rank + 1) * size)
    same = []

    def check(result: np.ndarray, expected: np.ndarray, tolerance: np.ndarray) -> None:
        assert (abs(result.astype("f8") - expected) <= tolerance).all(), (dtype, size)

    for op in OPERATIONS:
        expected, tolerance = reduced(small, op)
        result = job.run(
            lambda x, y, op=op: communicator.all_reduce(x, y, op, stream),
            *(small[rank], size, replayed),
        )
        check(result, expected, tolerance)
        same.append(result)
    expected, tolerance = reduced(small, "sum")
    if dtype[0] not in "iu":
        result = job.run(
            lambda x, y: communicator.all_reduce(x, y, "avg", stream),
            *(small[rank], size, replayed),
        )
        check(result, expected / RANKS, tolerance)
    root = seed % RANKS
    result = job.run(
        lambda x, y: communicator.reduce(x, y, root, stream=stream), small[rank], size, replayed
    )
    if rank == root:
        check(result, expected, tolerance)
    else:
        assert (result.view("u1") == POISON).all()
    result = job.run(
        lambda x, y: communicator.broadcast(x, y, root, stream), small[rank], size, replayed
    )
    assert (result == small[root]).all()
    result = job.run(
        lambda x, y: communicator.all_gather(x, y, stream), small[rank], size * RANKS, replayed
    )
    assert (result == np.concatenate(small)).all()
    expected, tolerance = reduced(whole, "sum")
    result = job.run(
        lambda x, y: communicator.reduce_scatter(x, y, stream=stream), whole[rank], size, replayed
    )
    check(result, expected[mine], tolerance[mine])
    result = job.run(
        lambda x, y: communicator.all_to_all(x, y, stream), whole[rank], size * RANKS, replayed
    )
    assert (result == np.concatenate([one[mine] for one in whole])).all()

    def ring(send: DeviceBuffer, recv: DeviceBuffer) -> None:
        with group():
            communicator.send(send, (rank + 1) % RANKS, stream)
            communicator.recv(recv, (rank - 1) % RANKS, stream)

    assert (job.run(ring, small[rank], size, replayed) == small[rank - 1]).all()
    communicator.barrier(stream)
    return same


def main() -> None:
    seed = int(sys.argv[1])
    devices = [uhal.Device(at, "cuda") for at in range(RANKS)]
    with devices[0]:
        identifier = unique_id()
    results: list[list[np.ndarray]] = [[] for _ in range(RANKS)]
    failures: list[BaseException] = []

    def work(rank: int) -> None:
        try:
            with devices[rank], Communicator(RANKS, identifier, rank) as communicator:
                job = Rank(communicator, rank)
                for dtype in DTYPES:
                    for at, size in enumerate(SIZES):
                        results[rank] += every(job, dtype, size, bool(at % 2), seed + at)
                results[rank] += every(job, "f32", 33, True, seed)
                part = communicator.split(0, -rank)
                assert part is not None and part.rank == RANKS - 1 - rank
                part.all_reduce(DeviceBuffer.zeros(3, "f32"))
                part.close()
                assert communicator.split(-1) is None
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(RANKS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert not failures, failures
    for one, other in zip(*results, strict=True):
        assert one.tobytes() == other.tobytes()
    print(f"{len(results[0])} results are the same on all ranks")


if __name__ == "__main__":
    main()

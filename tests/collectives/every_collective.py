"""A rank of a job: every collective, dtype and size, eager and replayed, against numpy.

mpirun -n RANKS python -m tests.collectives.every_collective SEED
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import uhal
from tests.sampling import rounds
from uhal import DeviceBuffer, Stream
from uhal.collectives import Communicator, Place, group, share, unique_id
from uhal.collectives.engine import Collective
from uhal.dtypes import as_dtype

DTYPES = "i8 u8 i16 u16 i32 u32 i64 u64 f16 bf16 f32 f64".split()
LARGE = rounds(1 << 17, 1 << 20)
SIZES = (0, 1, 33, LARGE)
POISON = 0xA5
OPERATIONS = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}
Arrays = list[np.ndarray]


def values(seed: int, dtype: str, size: int, ranks: int) -> Arrays:
    """Return every rank's operand: each rank computes all of them."""
    kind = as_dtype(dtype).dtype
    rng = np.random.default_rng(seed)
    if dtype[0] in "iu":
        # Without overflow, which MPI does not define: Open MPI saturates small types.
        return [rng.integers(0, 30, size).astype(kind) for _ in range(ranks)]
    return [rng.uniform(-2, 2, size).astype(kind) for _ in range(ranks)]


def reduced(operands: Arrays, op: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the result, and its tolerance: ranks may be combined in any order."""
    exact = operands[0].dtype.kind in "iu"
    if exact:
        result = operands[0]
        for one in operands[1:]:
            result = OPERATIONS[op](result, one)
        return result, np.zeros(result.shape)
    wide = [one.astype("f8") for one in operands]
    result, size = wide[0], abs(wide[0])
    for one in wide[1:]:
        result, size = OPERATIONS[op](result, one), OPERATIONS[op](size, abs(one))
    epsilon = float(as_dtype(operands[0].dtype).dtype.itemsize == 2 and 2**-8) or 2**-22
    smallest = 2.0**-24 if operands[0].dtype == np.float16 else 0.0  # a subnormal's rounding
    return result, len(operands) * (epsilon * size + smallest)


class Job:
    """A communicator, and streams that may capture."""

    def __init__(self, seed: int) -> None:
        self.place = Place.of()
        uhal.Api.quick_init(0, "host")
        identifier = share(unique_id() if self.place.rank == 0 else None)
        self.communicator = Communicator(self.place.ranks, identifier, self.place.rank)
        self.ranks, self.rank = self.place.ranks, self.place.rank
        self.stream = Stream()
        self.rng = np.random.default_rng(seed)

    def run(
        self,
        call: Callable[[DeviceBuffer, DeviceBuffer], None],
        operand: np.ndarray,
        size: int,
        replayed: bool,
    ) -> np.ndarray:
        """Run a call from an operand into poisoned memory; return the result."""
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
        result = recv.to_numpy(stream=self.stream)
        self.communicator.check()
        if replayed:
            plan.close()
        return result

    def same_everywhere(self, result: np.ndarray) -> None:
        """Check that all ranks have the same bits."""
        parts = DeviceBuffer.uninitialized(result.nbytes * self.ranks, "u8")
        flat = np.frombuffer(result.tobytes(), "u1")
        self.communicator.all_gather(DeviceBuffer.from_numpy(flat), parts, self.stream)
        gathered = parts.to_numpy(stream=self.stream).reshape(self.ranks, -1)
        assert (gathered == gathered[0]).all()


def every_collective(job: Job, dtype: str, size: int, replayed: bool, seed: int) -> None:
    ranks, rank, communicator, stream = job.ranks, job.rank, job.communicator, job.stream
    whole = values(seed, dtype, size * ranks, ranks)
    small = [one[:size] for one in whole]
    for op in OPERATIONS if dtype in ("f32", "f16", "bf16", "i32") else ("sum",):
        expected, tolerance = reduced(small, op)

        def all_reduce(send: DeviceBuffer, recv: DeviceBuffer, op: str = op) -> None:
            communicator.all_reduce(send, recv, op, stream)

        result = job.run(all_reduce, small[rank], size, replayed)
        assert (abs(result.astype("f8") - expected) <= tolerance).all(), (op, dtype, size)
        job.same_everywhere(result)
    root = int(job.rng.integers(ranks))
    expected, tolerance = reduced(small, "sum")
    result = job.run(
        lambda send, recv: communicator.reduce(send, recv, root, stream=stream),
        *(small[rank], size, replayed),
    )
    if rank == root:
        assert (abs(result.astype("f8") - expected) <= tolerance).all()
    else:
        assert (result.view("u1") == POISON).all()
    result = job.run(
        lambda send, recv: communicator.broadcast(send, recv, root, stream),
        *(small[rank], size, replayed),
    )
    assert (result.view("u1") == small[root].view("u1")).all()
    result = job.run(
        lambda send, recv: communicator.all_gather(send, recv, stream),
        *(small[rank], size * ranks, replayed),
    )
    assert (result.view("u1") == np.concatenate(small).view("u1")).all()
    expected, tolerance = reduced(whole, "sum")
    result = job.run(
        lambda send, recv: communicator.reduce_scatter(send, recv, stream=stream),
        *(whole[rank], size, replayed),
    )
    mine = slice(rank * size, (rank + 1) * size)
    assert (abs(result.astype("f8") - expected[mine]) <= tolerance[mine]).all()
    result = job.run(
        lambda send, recv: communicator.all_to_all(send, recv, stream),
        *(whole[rank], size * ranks, replayed),
    )
    assert (result == np.concatenate([one[mine] for one in whole])).all()

    def ring(send: DeviceBuffer, recv: DeviceBuffer) -> None:
        with group():
            communicator.send(send, (rank + 1) % ranks, stream)
            communicator.recv(recv, (rank - 1) % ranks, stream)

    result = job.run(ring, small[rank], size, replayed)
    assert (result == small[rank - 1]).all()


def opposite_orders(job: Job) -> None:
    """Two communicators on two streams; each rank uses them in a different order."""
    others = [job.communicator.split(0, job.rank) for _ in range(2)]
    streams = [Stream() for _ in range(2)]
    buffers = [DeviceBuffer.from_numpy(np.full(1000, job.rank + 1, "i4")) for _ in range(2)]
    for turn in range(20):
        for at in (0, 1) if (job.rank + turn) % 2 else (1, 0):
            one = others[at]
            assert one is not None
            one.all_reduce(buffers[at], stream=streams[at])
    for one, stream in zip(others, streams, strict=True):
        assert one is not None
        one.wait(60, stream)
        one.close()
    total = np.int32(job.ranks * (job.ranks + 1) // 2)
    with np.errstate(over="ignore"):
        for _ in range(19):
            total = np.int32(total * job.ranks)
    assert all((buffer.to_numpy() == total).all() for buffer in buffers)


def python_goes_on(job: Job) -> None:
    """A Python thread runs while this rank waits: rank 0 comes when all threads have counted."""
    with tempfile.TemporaryDirectory() as made:
        name = DeviceBuffer.from_numpy(np.frombuffer(made.encode().ljust(200), "u1").copy())
        job.communicator.broadcast(name, stream=job.stream)
        folder = Path(bytes(name.to_numpy(stream=job.stream)).decode().rstrip())
        buffer = DeviceBuffer.from_numpy(np.ones(10, "f4"))
        waits = threading.Event()

        def count() -> None:
            waits.wait()
            for _ in range(20):
                time.sleep(0.001)
            (folder / f"{job.rank}").touch()

        thread = threading.Thread(target=count)
        thread.start()
        if job.rank == 0:
            end = time.monotonic() + 60
            while len(os.listdir(folder)) < job.ranks - 1:
                assert time.monotonic() < end, os.listdir(folder)
                time.sleep(0.001)
        waits.set()
        job.communicator.all_reduce(buffer, stream=job.stream)
        job.stream.synchronize()
        thread.join()


def in_place_and_tensors(job: Job) -> None:
    import ubridge as ub

    ranks, rank = job.ranks, job.rank
    x = values(int(job.rng.integers(1 << 30)), "f32", 4 * ranks, ranks)
    whole = DeviceBuffer.from_numpy(x[rank])
    part = whole[4 * rank : 4 * rank + 4]
    job.communicator.all_gather(part, whole, job.stream)
    expected = np.concatenate([one[4 * at : 4 * at + 4] for at, one in enumerate(x)])
    assert (whole.to_numpy(stream=job.stream) == expected).all()
    tensor = ub.array(x[rank]).reshape(ranks, 4)
    job.communicator.all_reduce(tensor)
    assert np.allclose(tensor.to_numpy(), sum(x).reshape(ranks, 4), atol=1e-5)
    job.communicator.all_reduce(tensor[0])
    assert np.allclose(tensor[0].to_numpy(), ranks * sum(x)[:4], atol=1e-4)


def large_messages(job: Job) -> None:
    """Operands of several pieces of 16 MiB; the last piece is not full."""
    from uhal.collectives import mpi

    size = (mpi._PIECE_BYTES // 4) * 2 + 5
    pieces = mpi._pieces(Collective("all_reduce", 64, 128, size, "f32", "sum"))
    assert [one.count for one in pieces] == [mpi._PIECE_BYTES // 4] * 2 + [5]
    buffer = DeviceBuffer.from_numpy(np.arange(size, dtype="i4") + job.rank)
    job.communicator.all_reduce(buffer, stream=job.stream)
    extra = job.ranks * (job.ranks - 1) // 2
    with np.errstate(over="ignore"):
        expected = np.arange(size, dtype="i4") * np.int32(job.ranks) + np.int32(extra)
    assert (buffer.to_numpy(stream=job.stream) == expected).all()


def main() -> None:
    seed = int(sys.argv[1])
    job = Job(seed)
    rng = np.random.default_rng(seed)
    for dtype in DTYPES:
        for size in SIZES:
            for replayed in (False, True):
                if size == LARGE and dtype not in ("f32", "bf16"):
                    continue
                every_collective(job, dtype, size, replayed, int(rng.integers(1 << 30)))
    opposite_orders(job)
    python_goes_on(job)
    in_place_and_tensors(job)
    large_messages(job)
    job.communicator.barrier()
    job.communicator.close()
    print(f"rank {job.rank} of {job.ranks}: all right", flush=True)


if __name__ == "__main__":
    main()

"""The simulated NCCL refuses each planted misuse, and the message names it.

Every misuse is a program for which the real library hangs, corrupts data or returns an error.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import uhal
from uhal import DeviceBuffer, Stream
from uhal._lane import current_context
from uhal.abi import Header, Library

HEADER = Header.load(Path(uhal.__file__).parent / "collectives" / "nccl_abi.h")
PATH = os.environ["UHAL_NCCL_LIBRARY"]
LIBRARY = Library(
    ctypes.CDLL(PATH), PATH, HEADER, status="ncclResult_t", check=lambda name, code: None
)
ARGUMENT, USAGE, REMOTE, IN_PROGRESS = 4, 5, 6, 7
I32, F32, F64, SUM, MAX = 2, 7, 8, 0, 2
DEVICES = [uhal.Device(at, "cuda") for at in range(2)]
STREAMS: list[Stream] = []
MEMORY: list[DeviceBuffer] = []
for device in DEVICES:
    with device:
        STREAMS.append(Stream())
        MEMORY.append(DeviceBuffer.from_numpy(np.arange(64, dtype="f4")))
X, Y = (buffer.as_device_ptr().address for buffer in MEMORY)
S, T = (stream.handle for stream in STREAMS)


def identifier() -> Any:
    made = HEADER.ctype("ncclUniqueId")()
    assert LIBRARY.ncclGetUniqueId(made) == 0
    return made


def join(rank: int, name: Any, ranks: int = 2, device: int | None = None) -> Any:
    comm = ctypes.c_void_p()
    kind = HEADER.ctype("ncclConfig_t")
    config = kind(ctypes.sizeof(kind), HEADER.constants["NCCL_CONFIG_MAGIC"], 21400, 0)
    with DEVICES[rank if device is None else device], current_context().enter():
        result = LIBRARY.ncclCommInitRankConfig(comm, ranks, name, rank, config)
    return result if result not in (0, IN_PROGRESS) else comm


def pair() -> tuple[Any, Any]:
    name = identifier()
    return join(0, name), join(1, name)


def reduce(
    comm: Any, address: int, count: int = 4, kind: int = F32, op: int = SUM, **how: int
) -> int:
    stream = how.get("stream", S if address == X else T)
    result: int = LIBRARY.ncclAllReduce(address, address, count, kind, op, comm, stream)
    return result


def disagreeing(first: Callable[[Any], int], second: Callable[[Any], int]) -> int:
    """Return the second rank's result. The first rank gets the error, and its stream continues."""
    one, other = pair()
    assert first(one) == 0, LIBRARY.unchecked("ncclGetLastError")(None)
    result = second(other)
    error = ctypes.c_int()
    LIBRARY.ncclCommGetAsyncError(one, error)
    assert error.value == REMOTE
    STREAMS[0].synchronize()
    return result


def other_count() -> int:
    return disagreeing(lambda one: reduce(one, X, 4), lambda two: reduce(two, Y, 5))


def other_type() -> int:
    return disagreeing(lambda one: reduce(one, X), lambda two: reduce(two, Y, kind=I32))


def other_operation() -> int:
    return disagreeing(lambda one: reduce(one, X), lambda two: reduce(two, Y, op=MAX))


def other_order() -> int:
    return disagreeing(
        lambda one: reduce(one, X),
        lambda two: LIBRARY.ncclBroadcast(Y, Y, 4, F32, 0, two, T),
    )


def other_root() -> int:
    return disagreeing(
        lambda one: LIBRARY.ncclBroadcast(X, X, 4, F32, 0, one, S),
        lambda two: LIBRARY.ncclBroadcast(Y, Y, 4, F32, 1, two, T),
    )


def other_capture() -> int:
    def captured(one: Any) -> int:
        with DEVICES[0], STREAMS[0].capture() as plan:
            result = reduce(one, X)
        plan.close()
        return result

    return disagreeing(captured, lambda two: reduce(two, Y))


def short_receive() -> int:
    return disagreeing(
        lambda one: LIBRARY.ncclSend(X, 8, F32, 1, one, S),
        lambda two: LIBRARY.ncclRecv(Y, 4, F32, 0, two, T),
    )


def other_received_type() -> int:
    return disagreeing(
        lambda one: LIBRARY.ncclSend(X, 4, F64, 1, one, S),
        lambda two: LIBRARY.ncclRecv(Y, 4, F32, 0, two, T),
    )


def null_communicator() -> int:
    return reduce(None, X)


def destroyed_communicator() -> int:
    one, _ = pair()
    assert LIBRARY.ncclCommDestroy(one) == 0
    return reduce(one, X)


def aborted_by_other() -> int:
    one, other = pair()
    assert LIBRARY.ncclCommAbort(other) == 0
    return reduce(one, X)


def finalized_communicator() -> int:
    one, _ = pair()
    LIBRARY.ncclCommFinalize(one)
    return reduce(one, X)


def too_early() -> int:
    return reduce(join(0, identifier()), X)


def destroyed_while_running() -> int:
    one, _ = pair()
    assert reduce(one, X) == 0
    result: int = LIBRARY.ncclCommDestroy(one)
    LIBRARY.ncclCommAbort(one)
    STREAMS[0].synchronize()
    return result


def other_device() -> int:
    return reduce(pair()[0], Y, stream=S)


def too_little_memory() -> int:
    return reduce(pair()[0], X, 1 << 30)


def host_memory() -> int:
    array = np.zeros(4, "f4")
    return reduce(pair()[0], array.ctypes.data, stream=S)


def other_stream() -> int:
    return reduce(pair()[0], X, stream=T)


def overlap() -> int:
    result: int = LIBRARY.ncclAllReduce(X, X + 4, 4, F32, SUM, pair()[0], S)
    return result


def unknown_type() -> int:
    return reduce(pair()[0], X, kind=77)


def unknown_operation() -> int:
    return reduce(pair()[0], X, op=9)


def root_without_rank() -> int:
    result: int = LIBRARY.ncclReduce(X, X, 4, F32, SUM, 2, pair()[0], S)
    return result


def peer_without_rank() -> int:
    result: int = LIBRARY.ncclSend(X, 4, F32, -1, pair()[0], S)
    return result


def to_itself() -> int:
    result: int = LIBRARY.ncclSend(X, 4, F32, 0, pair()[0], S)
    return result


def to_itself_without_receive() -> int:
    one, _ = pair()
    LIBRARY.ncclGroupStart()
    assert LIBRARY.ncclSend(X, 4, F32, 0, one, S) == 0
    result: int = LIBRARY.ncclGroupEnd()
    return result


def end_of_no_group() -> int:
    result: int = LIBRARY.ncclGroupEnd()
    return result


def wrong_call_in_group() -> int:
    one, _ = pair()
    LIBRARY.ncclGroupStart()
    reduce(one, X, kind=77)
    assert reduce(one, X) == 0
    result: int = LIBRARY.ncclGroupEnd()
    return result


def same_rank_twice() -> Any:
    name = identifier()
    join(0, name)
    return join(0, name, device=1)


def one_device_for_two() -> Any:
    name = identifier()
    join(0, name)
    return join(1, name, device=0)


def other_size() -> Any:
    name = identifier()
    join(0, name)
    return join(1, name, 3)


def rank_out_of_range() -> Any:
    return join(1, identifier(), 1)


def invented_identifier() -> Any:
    return join(0, HEADER.ctype("ncclUniqueId")())


MISUSES: tuple[tuple[Callable[[], Any], int, str], ...] = (
    (other_count, USAGE, "expected AllReduce of 4 f32 by sum, as rank 0, as call 1, got AllRe"),
    (other_type, USAGE, "got AllReduce of 4 i32 by sum from rank 1"),
    (other_operation, USAGE, "got AllReduce of 4 f32 by max"),
    (other_order, USAGE, "got Broadcast of 4 f32 with root 0"),
    (other_root, USAGE, "expected Broadcast of 4 f32 with root 0"),
    (other_capture, USAGE, "expected a captured AllReduce"),
    (short_receive, USAGE, "expected Send and Recv of 8 f32"),
    (other_received_type, USAGE, "expected Send and Recv of 4 f64"),
    (null_communicator, ARGUMENT, "expected a live communicator, got null"),
    (destroyed_communicator, ARGUMENT, "expected a live communicator, got one that is gone"),
    (aborted_by_other, REMOTE, "the communicator has failed"),
    (finalized_communicator, USAGE, "before ncclCommFinalize"),
    (too_early, USAGE, "that all ranks have joined"),
    (destroyed_while_running, USAGE, "1 calls have not ended"),
    (other_device, ARGUMENT, "expected 16 bytes of device 0, got memory of device 1"),
    (too_little_memory, ARGUMENT, "expected 4294967296 bytes of device 0, got"),
    (host_memory, ARGUMENT, "got memory that is not a device's"),
    (other_stream, ARGUMENT, "expected a stream of device 0, the communicator's, got one of 1"),
    (overlap, ARGUMENT, "expected memory apart from sendbuff"),
    (unknown_type, ARGUMENT, "datatype: expected 0 to 9, got 77"),
    (unknown_operation, ARGUMENT, "op: expected 0 to 4, got 9"),
    (root_without_rank, ARGUMENT, "root or peer: expected 0 to 1, got 2"),
    (peer_without_rank, ARGUMENT, "root or peer: expected 0 to 1, got -1"),
    (to_itself, USAGE, "a rank sends to itself inside a group only"),
    (to_itself_without_receive, USAGE, "expected a receive for each send"),
    (end_of_no_group, USAGE, "expected a group that was started"),
    (wrong_call_in_group, ARGUMENT, "datatype: expected"),
    (same_rank_twice, USAGE, "rank 0 has joined already"),
    (one_device_for_two, USAGE, "duplicate GPU: ranks 0 and 1 are on device 0"),
    (other_size, ARGUMENT, "nranks: expected 2, as another rank, got 3"),
    (rank_out_of_range, ARGUMENT, "expected a rank below nranks, got 1 of 1"),
    (invented_identifier, ARGUMENT, "expected an id of ncclGetUniqueId"),
)


def main() -> None:
    for misuse, code, words in MISUSES:
        result = misuse()
        said: bytes = LIBRARY.unchecked("ncclGetLastError")(None)
        assert (result, words in said.decode()) == (code, True), (misuse.__name__, result, said)
    print(f"{len(MISUSES)} misuses refused")


if __name__ == "__main__":
    main()

"""A job of one rank: each wrong call is refused before anything is enqueued."""

import numpy as np

import ubridge as ub
import uhal
from uhal import DeviceBuffer, Stream
from uhal.collectives import Communicator, group, share, unique_id
from uhal.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    InvalidHandleError,
    NotSupportedError,
)

uhal.Api.quick_init(0, "host")
identifier = unique_id()
one = Communicator(1, share(identifier), 0)
f4, f8 = DeviceBuffer.zeros(4, "f4"), DeviceBuffer.zeros(8, "f4")
i4, f8e4m3 = DeviceBuffer.zeros(4, "i4"), DeviceBuffer.zeros(4, "f8e4m3")
closed = DeviceBuffer.zeros(4, "f4")
closed.close()
other = uhal.Device(1, "host")
with other:
    there, elsewhere = DeviceBuffer.zeros(4, "f4"), Stream()
strided = ub.zeros((4, 4)).T
frozen = DeviceBuffer.from_dlpack(np.frombuffer(b"x" * 16, "f4"))


def nested() -> None:
    with group(), group():
        pass


def reducing_in_group() -> None:
    with group():
        one.all_reduce(f4)


for wrong, kind, text in (
    (lambda: one.all_reduce(f4, f8), ArgumentValueError, "recv: expected 4 elements, got 8"),
    (lambda: one.all_reduce(f4, i4), ArgumentTypeError, "recv: expected f32 as send, got i32"),
    (lambda: one.all_reduce(f8e4m3), NotSupportedError, "got f8e4m3"),
    (lambda: one.all_reduce(f4, op="median"), ArgumentValueError, "op: expected one of sum, prod"),
    (lambda: one.all_reduce(f4, op="avg"), NotSupportedError, "MPI has no avg"),
    (lambda: one.all_reduce(f8[:4], f8[2:6]), ArgumentValueError, "overlaps"),
    (lambda: one.all_reduce(there), InvalidHandleError, "expected one of host:0, the"),
    (lambda: one.all_reduce(f4, stream=elsewhere), InvalidHandleError, "stream: expected"),
    (lambda: one.all_reduce(f4, stream=7), ArgumentTypeError, "stream: expected a Stream, got"),
    (lambda: one.all_reduce(np.zeros(4)), ArgumentTypeError, "expected a DeviceBuffer or"),
    (lambda: one.all_reduce(closed), InvalidHandleError, "closed"),
    (lambda: one.all_reduce(strided), ArgumentValueError, "expected a contiguous tensor"),
    (lambda: one.all_gather(f4, f8), ArgumentValueError, "all_gather, recv: expected 4 elements"),
    (lambda: one.all_to_all(f4, f4), ArgumentValueError, "overlaps"),
    (lambda: one.reduce_scatter(f8, f4), ArgumentValueError, "reduce_scatter, send: expected 4"),
    (lambda: one.broadcast(f4, root=1), ArgumentValueError, "expected a number from 0 to 0"),
    (lambda: one.send(f4, 0), ArgumentValueError, "send, peer: expected another rank"),
    (lambda: one.recv(f4, -1), ArgumentValueError, "recv, peer: expected an int from 0"),
    (lambda: one.broadcast(f4, frozen), ArgumentTypeError, "recv: expected memory to write"),
    (nested, ArgumentValueError, "expected no group inside"),
    (reducing_in_group, ArgumentValueError, "expected only send and recv"),
    (lambda: Communicator(2, identifier, 0), ArgumentValueError, "expected on each rank its"),
    (lambda: Communicator(1, b"short", 0), ArgumentValueError, "expected the 128 bytes"),
    (lambda: Communicator(1, identifier, 1), ArgumentValueError, "rank: expected a number from 0"),
):
    try:
        wrong()
    except kind as error:
        assert text in str(error), (text, str(error))
    else:
        raise AssertionError(text)
assert one.calls == 0
one.all_reduce(f4)
one.wait(60)
one.close()
one.close()
try:
    one.all_reduce(f4)
except InvalidHandleError as error:
    assert "the communicator is closed" in str(error)
print("refused")

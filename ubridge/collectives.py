"""Sums and joins over the ranks of a group, which traces record and plans replay."""

from __future__ import annotations

from functools import partial

from ubridge.core.layout import Layout, Shape
from ubridge.core.operation import Op
from ubridge.core.question import Question
from ubridge.creation import empty
from ubridge.definitions.calls import named
from ubridge.definitions.collectives import ALL_GATHER, ALL_REDUCE
from ubridge.device import recording
from ubridge.device.ready import Enqueue, RecordedWork
from ubridge.ops.results import require_tensors
from ubridge.tensor import DeviceTensor
from uhal import DeviceBuffer
from uhal.collectives import Communicator
from uhal.collectives.operands import buffer_of
from uhal.errors import ArgumentTypeError
from uhal.interop import StreamLike


@named
def all_reduce(
    x: DeviceTensor, group: Communicator, op: str = "sum", *, stream: StreamLike | None = None
) -> DeviceTensor:
    """Combine the ranks' tensors element by element; return x.

    The result replaces x. Every rank calls the function with a contiguous tensor of one shape and
    dtype. `op` is sum, prod, max or min, on GPUs also avg. A trace records the call, and a replay
    of its plan combines again: all ranks replay. Raises the errors of `Communicator.all_reduce`.
    """
    buffer = _memory("all_reduce", x, group)
    attributes = (("op", op),)
    _run(ALL_REDUCE, attributes, partial(_all_reduce, group, op), stream, x.shape, buffer)
    return x


@named
def all_gather(
    x: DeviceTensor, group: Communicator, *, stream: StreamLike | None = None
) -> DeviceTensor:
    """Return the ranks' tensors of one shape and dtype, stacked: `(ranks, *shape)`.

    Otherwise as `all_reduce`.
    """
    buffer = _memory("all_gather", x, group)
    made = empty((group.ranks, *x.shape), x.dtype, device=x.device, stream=stream)
    _run(ALL_GATHER, (), partial(_all_gather, group), stream, made.shape, made.buffer, buffer)
    return made


def _memory(what: str, x: DeviceTensor, group: Communicator) -> DeviceBuffer:
    require_tensors(what, x)
    if not isinstance(group, Communicator):
        raise ArgumentTypeError(
            f"{what}, group: expected a uhal.collectives.Communicator, got {type(group).__name__}"
        )
    return buffer_of(what, "x", x)


def _run(
    op: Op,
    attributes: tuple[tuple[str, str], ...],
    work: Enqueue,
    stream: StreamLike | None,
    shape: Shape,
    out: DeviceBuffer,
    *operands: DeviceBuffer,
) -> None:
    """Enqueue a collective, and report it to a trace as work that can be enqueued again."""
    with recording.unheard():
        work(stream, out, *operands)
    if recording.is_heard(out.device):
        known = [(one.dtype, Layout.contiguous(shape[1:])) for one in operands]
        question = Question(
            op,
            tuple(known),
            (out.dtype, Layout.contiguous(shape)),
            (*attributes, ("work", RecordedWork(work, 0))),
        )
        recording.tell(question, out, False, operands)


def _all_reduce(
    group: Communicator, op: str, stream: StreamLike | None, x: DeviceBuffer
) -> DeviceBuffer:
    group.all_reduce(x, op=op, stream=stream)
    return x


def _all_gather(
    group: Communicator, stream: StreamLike | None, out: DeviceBuffer, x: DeviceBuffer
) -> DeviceBuffer:
    group.all_gather(x, out, stream)
    return out


__all__ = ["all_gather", "all_reduce"]

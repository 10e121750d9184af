"""`trace` records the operations on tensors within a block as a graph that can run again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from types import NoneType
from typing import Any

import numpy as np

from ubridge.core.layout import Layout
from ubridge.core.operation import WORK
from ubridge.core.question import Question
from ubridge.device import recording
from ubridge.device.executor import DeviceExecutor
from ubridge.device.ready import Enqueue, RecordedWork
from ubridge.graph.calls import Call
from ubridge.graph.graph import ComputeGraph
from uhal import Device, DeviceBuffer, Function, LaunchSequence, Passed, Stream
from uhal.device import DeviceLike
from uhal.errors import DeviceError
from uhal.interop import StreamLike


def trace(device: DeviceLike | None = None) -> AbstractContextManager[ComputeGraph]:
    """Run a block and record its operations: `with ubridge.trace() as graph:`.

    This thread's operations on tensors of the device (by default the current device) run as always
    and become nodes of the graph. When the block ends, results that are still held keep their
    memory and are written again by each run. Other results get memory planned by the graph. Tensors
    from before the block and tensors made of host data are leaves: a run reads their contents at
    that time.

    Launches of the program's own kernels, its `LaunchSequence`s, fills, and copies between buffers
    of the device become nodes too. Each such node counts as a reader and writer of all its buffers.
    All other numbers are constants. Work that a graph cannot repeat raises `DeviceError` at once:
    replays of plans, copies from the host into a result or from another device, memory given to
    other libraries. Copies to the host are not recorded. Raises `DeviceError` when another trace of
    the device is active.
    """
    return _tracing(DeviceExecutor.of(device))


@contextmanager
def _tracing(executor: DeviceExecutor) -> Iterator[ComputeGraph]:
    if recording.listened_to(executor.device):
        raise DeviceError(
            f"trace: operations on {executor.device!r} are being traced already, perhaps by "
            "another thread; one trace a device at a time"
        )
    graph = ComputeGraph(executor.device)
    tracer = _Tracer(graph, executor.device)
    context = executor.device.context
    context.observe_work(tracer.observe)
    try:
        with recording.listening(tracer):
            yield graph
    finally:
        context.observe_work(None)
    graph.storages.settle()
    graph.is_recorded = True


class _Tracer(recording.Listener):
    """Turns operations into nodes."""

    def __init__(self, graph: ComputeGraph, device: Device) -> None:
        super().__init__(device)
        self._graph = graph

    def asked(
        self, question: Question, out: DeviceBuffer, is_new: bool, given: tuple[Any, ...]
    ) -> None:
        """Add a node; an unknown buffer becomes a leaf."""
        count = len(question.operands)
        view_of = self._graph.storages.view_of
        operands = tuple(view_of(one) for one in given[:count])
        if is_new:
            self.allocated(out)
        self._graph.add_call(Call(question, operands, view_of(out), given[count:]))

    def observe(self, kind: str, *details: Any) -> None:
        """Add a node for a launch, a fill or a copy; refuse other work before it is enqueued.

        Other threads' work and work within operations are ignored.
        """
        if not self.hears(self.device) or recording.is_within_one():
            return
        if kind == "launch":
            self._launched(*details)
        elif kind == "fill":
            buffer, width, value = details
            self._add(partial(_fill, width, value), 0, buffer)
        elif kind == "copy" and isinstance(details[1], DeviceBuffer):
            destination, source = details
            if source.device != self.device:
                raise _unrepeatable("a copy from another device")
            self._add(_copy, 0, destination, source)
        elif kind in ("copy", "copy_2d") and not isinstance(details[1], DeviceBuffer):
            number = self._graph.storages.number_of(details[0].base)
            if number is not None and self._graph.is_result(number):
                raise _unrepeatable("a copy from the host into a result")
        else:
            what = {"replay": "the replay of a plan", "copy_2d": "a copy of rows between buffers"}
            raise _unrepeatable(what.get(kind, "memory given to another library"))

    def _launched(
        self,
        function: Function,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared: int,
        arguments: tuple[Any, ...],
        is_extended: bool,
    ) -> None:
        name = f"launch of {function.name}"
        if is_extended:
            raise _unrepeatable(f"{name} with options besides its geometry")
        buffers = _buffers_of(name, arguments)
        passed = iter(range(len(buffers)))
        taken = [
            Passed.operand(next(passed)) if isinstance(one, DeviceBuffer) else one
            for one in arguments
        ]
        if buffers:
            launch = LaunchSequence([(function[grid, block, shared], taken)], operands=len(buffers))
            self._add(launch, 1, buffers[-1], *buffers)

    def called(
        self, sequence: LaunchSequence, out: DeviceBuffer, is_new: bool, given: tuple[Any, ...]
    ) -> None:
        """Add a node for a sequence of the program."""
        buffers = _buffers_of(repr(sequence), given)
        if is_new:
            self.allocated(out)
        self._add(partial(_call, sequence, given), len(sequence), out, *buffers)

    def _add(
        self, launch: Enqueue, launches: int, out: DeviceBuffer, *buffers: DeviceBuffer
    ) -> None:
        known = [(one.dtype, Layout.contiguous(one.size)) for one in (out, *buffers)]
        work = (("work", RecordedWork(launch, launches)),)
        question = Question(WORK, tuple(known[1:]), known[0], work)
        view_of = self._graph.storages.view_of
        self._graph.add_call(Call(question, tuple(map(view_of, buffers)), view_of(out)))

    def allocated(self, buffer: DeviceBuffer) -> None:
        """Record a new result. Only its users keep it alive."""
        self._graph.storages.watch(buffer)


def _buffers_of(name: str, arguments: tuple[Any, ...]) -> list[DeviceBuffer]:
    """The buffers among arguments; the others must be numbers."""
    for one in arguments:
        if not isinstance(one, (DeviceBuffer, int, float, np.generic, NoneType)):
            raise DeviceError(
                f"trace: {name}: expected DeviceBuffers and numbers, whose memory a graph knows, "
                f"got {type(one).__name__}. Give a tensor's buffer."
            )
    return [one for one in arguments if isinstance(one, DeviceBuffer)]


def _call(
    sequence: LaunchSequence,
    given: tuple[Any, ...],
    stream: StreamLike | None,
    out: DeviceBuffer,
    *buffers: DeviceBuffer,
) -> Any:
    """Enqueue a sequence on other buffers, with the recorded numbers."""
    left = iter(buffers)
    return sequence(
        stream, out, *(next(left) if isinstance(one, DeviceBuffer) else one for one in given)
    )


def _fill(width: int, value: int, stream: StreamLike | None, out: DeviceBuffer) -> DeviceBuffer:
    getattr(out, f"set_{8 * width}")(value, stream=stream)
    return out


def _copy(stream: StreamLike | None, out: DeviceBuffer, source: DeviceBuffer) -> DeviceBuffer:
    out.copy_from_async(source, Stream.default(out.device) if stream is None else stream)
    return out


def _unrepeatable(what: str) -> DeviceError:
    return DeviceError(
        f"trace: expected work that a graph can repeat, got {what}, which was not enqueued. Do it "
        "before the trace or after it."
    )

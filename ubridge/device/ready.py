"""A prepared operation on one device: kernels found, layouts uploaded, one call to enqueue it.

An operation of launches alone is a compiled `uhal.LaunchSequence`. An operation that also waits,
copies by the runtime or calls a library runs here, step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from ubridge.core.prepared import Elements, Launch, Prepared, Source, Words, Work, part_of
from ubridge.core.question import Question
from ubridge.device import recording
from ubridge.device.kernels import DeviceKernels
from uhal import (
    DeviceBuffer,
    Function,
    LaunchSequence,
    Passed,
    Stream,
    Tally,
    annotate,
    is_profiling,
)
from uhal.dtypes import u8
from uhal.errors import InvalidImageError
from uhal.interop import StreamLike

Enqueue = Callable[..., Any]
"""Called with the stream, the result's buffer or `None`, the operands' buffers and the numbers."""

_SCRATCH = -2
_NUMBERS = (int, float, type(None))
_KEPT = (*_NUMBERS, Passed)
"""Types of arguments that are passed unchanged."""
_PART = "a part of an operation"
"""Subject of sequences that the recorder skips, because it records the whole operation."""


class Ready(NamedTuple):
    """An operation that can be enqueued on its device any number of times."""

    prepared: Prepared
    launch: Enqueue


class RecordedWork(NamedTuple):
    """A program's work, recorded by a trace, that can be enqueued again."""

    launch: Enqueue
    launches: int

    def ready(self, question: Question) -> Ready:
        """Return the work as a ready operation whose kernels may use all of the work's memory."""
        given = {str(index): Passed.operand(index) for index in range(len(question.operands))}
        step = Launch("", question.op.name, 1, 1, 0, {**given, "out": Passed.result()})
        prepared = Prepared(question, (step,) * self.launches, 0, False, "")
        return Ready(prepared, self.launch)


def make_ready(at: DeviceKernels, prepared: Prepared, tally: Tally | None) -> Ready:
    """Find the kernels of an operation and upload its layouts. Nothing is enqueued."""
    question = prepared.question
    dtype, layout = question.result
    operands = len(question.operands) + question.numbers
    launches = prepared.launches
    if len(launches) == len(prepared.steps):
        made = () if question.is_in_place else (layout.size, dtype)
        launch: Enqueue = LaunchSequence(
            [_bound(at, step) for step in launches],
            *made,
            operands=operands,
            scratch=prepared.scratch,
            about=question,
            tally=tally,
        )
    else:
        launch = _InTurn(at, prepared, tally)
    return Ready(prepared, launch)


def _bound(at: DeviceKernels, step: Launch, room: int | None = None) -> tuple[Any, list[object]]:
    """Return the function with its geometry, and the arguments in the function's order.

    With `room`, the operand of this index is the scratch, and the sequence allocates none.
    """
    function = at.get_or_load_func(step.entry, step.module)
    bound = function[step.grid, step.block, step.shared]
    given = map(step.arguments.__getitem__, parameter_names(function, step))
    kept = _KEPT if room is None else _NUMBERS
    return bound, [one if type(one) in kept else _argument(at, one, room) for one in given]


def parameter_names(function: Function, step: Launch) -> Sequence[str]:
    """Return the names of the kernel's parameters in order; they must be the given names.

    Raises `InvalidImageError` for other parameters, and for an image that does not name them.
    """
    signature = function.signature
    names = () if signature is None else signature.names
    if step.arguments.keys() != set(names) or len(names) != len(step.arguments):
        raise InvalidImageError(
            f"{step.entry} of module {step.module!r}: expected a kernel of the parameters "
            f"{', '.join(step.arguments)}, got {signature or 'one that does not name them'}"
        )
    return names


def _argument(at: DeviceKernels, source: Source, room: int | None) -> object:
    if isinstance(source, Words):
        found = at.layouts.get(source.words)
        return found if source.dtype == "u64" else found.view(source.dtype)
    if isinstance(source, Elements):
        return at.constants.get((source.dtype, source.data))
    if room is not None and isinstance(source, Passed) and source.index == _SCRATCH:
        return Passed.operand(room, source.start, source.size, source.dtype)
    return source


class _InTurn:
    """Launches, and work of the host between them."""

    __slots__ = ("_at", "_operands", "_prepared", "_stages", "_tally")

    def __init__(self, at: DeviceKernels, prepared: Prepared, tally: Tally | None) -> None:
        self._at = at
        self._prepared = prepared
        self._tally = tally
        question = prepared.question
        self._operands = len(question.operands) + question.numbers
        self._stages: list[LaunchSequence | Work] = []
        for is_launch, steps in groupby(prepared.steps, lambda one: isinstance(one, Launch)):
            if is_launch:
                launches = [
                    _bound(at, step, self._operands) for step in steps if isinstance(step, Launch)
                ]
                self._stages.append(
                    LaunchSequence(launches, operands=self._operands + 1, about=_PART)
                )
            else:
                self._stages += [step for step in steps if isinstance(step, Work)]

    def __call__(
        self, stream: StreamLike | None, out: DeviceBuffer | None, *given: Any
    ) -> DeviceBuffer:
        prepared = self._prepared
        question = prepared.question
        if len(given) != self._operands or (out is None and question.is_in_place):
            raise TypeError(
                f"{question!r}: expected stream, out and {self._operands} operands, got {given!r}"
            )
        is_new = out is None
        if out is None:
            dtype, layout = question.result
            out = self._at.room(layout.size, dtype, stream)
        room = self._at.room(prepared.scratch, u8, stream) if prepared.scratch else None
        for stage in self._stages:
            if isinstance(stage, LaunchSequence):
                stage(stream, out, *given, room)
            else:
                memory = [self._memory(one, out, room, given) for one in stage.memory]
                with recording.unheard():
                    if is_profiling():
                        self._run_named(stage, stream, out, memory)
                    else:
                        stage.run(self._at, stream, *memory)
        if self._tally is not None:
            self._tally.count += 1
        recording.tell(question, out, is_new, given)
        return out

    def _run_named(
        self, stage: Work, stream: StreamLike | None, out: DeviceBuffer, memory: list[Any]
    ) -> None:
        """Run it as one piece of work, named and timed by a profile."""
        taken = self._prepared.taken_by
        name = f"{self._prepared.question.op.name}{f' by {taken}' if taken else ''}"
        nbytes = sum(one.nbytes for one in memory if isinstance(one, DeviceBuffer))
        with annotate(name, stream=stream or Stream.default(out.device), nbytes=nbytes):
            stage.run(self._at, stream, *memory)

    @staticmethod
    def _memory(
        passed: Passed, out: DeviceBuffer, room: DeviceBuffer | None, given: tuple[Any, ...]
    ) -> Any:
        if passed.index >= 0:
            return part_of(given[passed.index], passed)
        return part_of(room if passed.index == _SCRATCH else out, passed)

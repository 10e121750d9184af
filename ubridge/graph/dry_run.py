"""The launches of a graph on its device, and their memory, without running it.

Preparing operations finds their kernels and uploads their layouts, which must not happen during a
capture. A plan's slot can replace memory that is an argument of a kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ubridge.core.prepared import Launch, part_of
from ubridge.device.executor import DeviceExecutor
from ubridge.device.ready import Enqueue
from ubridge.graph.dispatch import Step
from ubridge.graph.ops import Node
from uhal import DeviceBuffer, Passed
from uhal.errors import DeviceError, NotSupportedError

_RESULT = -1


class DryRun:
    """The operations of a graph, ready on its device, and their launches."""

    def __init__(self, executor: DeviceExecutor, steps: Sequence[Step]) -> None:
        """Prepare all operations; `NotSupportedError` if one needs more than kernel launches."""
        self.launches: dict[int, int] = {}
        """Kernel launches of each operation, by node."""
        self.enqueuing: list[Enqueue] = []
        """A function for each operation that enqueues it."""
        # Ranges of bytes that are arguments of kernels, by buffer.
        self._given: dict[DeviceBuffer, set[tuple[int, int]]] = {}
        backend = executor.device.backend
        for step in steps:
            with naming(step.node):
                ready = executor.ready(step.question)
            if ready.prepared.is_beyond_launches:
                raise NotSupportedError(
                    f"{step.node}: on {backend} this is more than launches of kernels, and cannot "
                    "be captured; execute_graph runs it",
                    backend=backend,
                )
            self.enqueuing.append(ready.launch)
            self.launches[step.node.index] = len(ready.prepared.launches)
            for launch in ready.prepared.launches:
                self._note(step, launch)

    def reads(self, memory: DeviceBuffer) -> bool:
        """Return whether the memory, or a part of it, is an argument of a launch."""
        start = memory.byte_offset
        stop = start + memory.nbytes
        given = self._given.get(memory.base, ())
        return start < stop and any(start <= first and last <= stop for first, last in given)

    def _note(self, step: Step, launch: Launch) -> None:
        for source in launch.arguments.values():
            if not isinstance(source, Passed) or source.index < _RESULT:
                continue
            whole = step.out if source.index == _RESULT else step.arguments[source.index]
            if isinstance(whole, DeviceBuffer):
                buffer = part_of(whole, source)
                start = buffer.byte_offset
                self._given.setdefault(buffer.base, set()).add((start, start + buffer.nbytes))


@contextmanager
def naming(node: Node) -> Iterator[None]:
    """Name the operation in errors."""
    try:
        yield
    except DeviceError as error:
        error.args = (f"{node}: {error}", *error.args[1:])
        raise

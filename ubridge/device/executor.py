"""State that ubridge keeps for a device: kernels, layouts in its memory, prepared operations.

There is one `DeviceExecutor` a device; it lasts until the device is closed.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from ubridge.core.layout import Layout
from ubridge.core.lowering import Steps
from ubridge.core.prepared import Prepared
from ubridge.core.process_bound import ProcessBound
from ubridge.core.product import MatmulChoice, MatmulKernel
from ubridge.core.question import Question
from ubridge.definitions.products import MATMUL
from ubridge.device import recording
from ubridge.device.content_cache import ConstantCache
from ubridge.device.kernels import DeviceKernels
from ubridge.device.ready import Enqueue, Ready, RecordedWork, make_ready
from ubridge.device.recent import Recent
from ubridge.device.spans import require_apart
from uhal import Device, DeviceBuffer, DType, Tally
from uhal.device import DeviceLike, as_device
from uhal.dtypes import u8
from uhal.frameworks import CallTable, Context, call_before_close, current_context
from uhal.interop import StreamLike

REMEMBERED = 4096
"""Operations that a device keeps ready."""


class Answer:
    """An operation of tensors, ready to enqueue, with the layout and dtype of its result."""

    __slots__ = ("ahead", "behind", "dtype", "launch", "layout")

    def __init__(
        self,
        launch: Enqueue,
        layout: Layout,
        dtype: DType,
        ahead: tuple[Any, ...] = (),
        behind: tuple[Any, ...] = (),
    ) -> None:
        self.launch = launch
        self.layout = layout
        self.dtype = dtype
        self.ahead = ahead
        """Arguments before the buffers."""
        self.behind = behind
        """Arguments after the buffers, such as an epsilon."""

    def passing(self, ahead: tuple[Any, ...] = (), behind: tuple[Any, ...] = ()) -> Answer:
        """Return the same answer with further arguments."""
        return Answer(self.launch, self.layout, self.dtype, ahead, behind)


_NO_ANSWER = Answer(None, Layout.contiguous(()), u8)  # type: ignore[arg-type]
"""Kept when `how` gives no answer: such calls run the function itself."""


class Executor(ABC):
    """Computes questions on a device, or describes them in a graph."""

    # A dictionary, so that `help` and `inspect.getdoc` find the text.
    __slots__ = {"remembered": "Answers that `uhal._lane` keeps; `None`: every function is called."}

    remembered: CallTable | None
    device: Device
    constants: ConstantCache

    @abstractmethod
    def allocate(self, size: int, dtype: DType, stream: StreamLike | None = None) -> DeviceBuffer:
        """Return an uninitialised buffer for a result.

        The memory is allocated in the order of `stream`.
        """

    @abstractmethod
    def enqueuing(self, question: Question) -> Enqueue:
        """Return a function that enqueues the operation."""

    @abstractmethod
    def explain(self, question: Question) -> MatmulChoice:
        """Return the kernel chosen for a question, with the reasons."""

    def run(
        self, question: Question, stream: StreamLike | None, out: Any, *given: Any
    ) -> DeviceBuffer:
        """Enqueue an operation once; return its result's buffer.

        Raises `ArgumentValueError` for an `out` that shares memory with an operand, unless the
        operation may write over it.
        """
        if out is not None:
            require_apart(question, out, given)
        made: DeviceBuffer = self.enqueuing(question)(stream, out, *given)
        return made


class DeviceExecutor(ProcessBound, DeviceKernels, Executor):
    """Prepares operations for a device and enqueues them.

    Any thread may use it.
    """

    _instead = "Send its device; DeviceExecutor.of(device) there."

    def __init__(self, device: Device) -> None:
        """`of` makes it."""
        super().__init__(device)
        self._answers: Recent[Hashable, Answer] = Recent(REMEMBERED)
        self.known = self._answers.latest
        """The recently used answers; read-only."""
        self.remembered = CallTable()
        self._ready: Recent[Question, Ready] = Recent(REMEMBERED)
        self._tallies: dict[str, Tally] = {}
        self._ranges: WeakKeyDictionary[DeviceBuffer, tuple[float, float]] = WeakKeyDictionary()

    @classmethod
    def of(cls, device: DeviceLike | None = None) -> DeviceExecutor:
        """Return the executor of a device, by default the current one."""
        context = current_context() if device is None else as_device(device).context
        found = EXECUTORS.get(context) if context is not None else None
        if found is None:
            opened = Device.current() if device is None else as_device(device)
            with _lock:
                found = EXECUTORS.get(opened.context)
                if found is None:
                    found = EXECUTORS[opened.context] = cls(opened)
        return found

    # -- questions -------------------------------------------------------------------------------

    def answer(
        self, key: Hashable, how: Callable[..., Answer | None], *facts: Any
    ) -> Answer | None:
        """Return the answer for the key, made once by `how(self, *facts)`.

        The key holds everything that the answer depends on. The key's layouts have no start offset:
        callers pass buffers from the first element on.
        """
        found = self._answers.get(key)
        if found is None:
            found = how(self, *facts) or _NO_ANSWER
            self._answers.keep(key, found)
        if self.known is not self._answers.latest:
            # After a new table, calls look up each answer in use again, so `_answers` keeps the
            # answer.
            self.known = self._answers.latest
            self.remembered = CallTable()
        return None if found is _NO_ANSWER else found

    def ready(self, question: Question) -> Ready:
        """Return the operation, ready to be enqueued on this device."""
        found = self._ready.get(question)
        if found is None:
            found = self._make(question)
            self._ready.keep(question, found)
        return found

    def enqueuing(self, question: Question) -> Enqueue:
        """Return a function that enqueues the operation."""
        return self.ready(question).launch

    def prepare(self, question: Question) -> Prepared:
        """Return the launches for a question; nothing is enqueued.

        Raises `NotSupportedError` and `ArgumentTypeError` where there is no kernel.
        """
        steps = Steps(question, self)
        steps.add()
        return steps.prepared()

    def _make(self, question: Question) -> Ready:
        if question.op.family.is_recorded:
            work: RecordedWork = question.attribute("work")
            return work.ready(question)
        prepared = self.prepare(question)
        is_counted = prepared.taken_by and not question.is_capturable
        return make_ready(self, prepared, self.tally(prepared.taken_by) if is_counted else None)

    # -- products --------------------------------------------------------------------------------

    @property
    def matmul_launches(self) -> Mapping[str, int]:
        """Number of matrix products by kernel name; `ubridge.matmul_choice` gives the reason."""
        return {name: tally.count for name, tally in self._tallies.items() if tally.count}

    def tally(self, name: str) -> Tally:
        """Return the number of products that a kernel computed."""
        return self._tallies.setdefault(name, Tally())

    def explain(self, question: Question) -> MatmulChoice:
        """Return the kernel chosen for a question, with the reasons."""
        return self.lowering(question.op).explain(question)

    @property
    def matmul_kernels(self) -> Sequence[MatmulKernel]:
        """The kernels for products, in order of preference.

        The sequence is empty if there is only one kernel.
        """
        return self.lowering(MATMUL).choices

    # -- memory ----------------------------------------------------------------------------------

    def allocate(self, size: int, dtype: DType, stream: StreamLike | None = None) -> DeviceBuffer:
        """Return an uninitialised buffer for a result.

        The memory is allocated in the order of `stream`.
        """
        buffer = self.room(size, dtype, stream)
        recording.tell_allocated(buffer)
        return buffer

    @property
    def is_recorded(self) -> bool:
        """Whether this thread's operations on the device are being traced."""
        return recording.is_heard(self.device)

    def note_range(self, buffer: DeviceBuffer, low: float, high: float) -> None:
        """Record the range, ends included, of a buffer's elements."""
        self._ranges[buffer.base] = low, high

    def known_range(self, buffer: DeviceBuffer) -> tuple[float, float] | None:
        """Return a buffer's recorded range: least and greatest number."""
        return self._ranges.get(buffer.base) if self._ranges else None

    def synchronize(self) -> None:
        """Wait for all work on the device.

        Raises `IndexError` if an id was out of bounds.
        """
        self.device.synchronize()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.device!r}>"


EXECUTORS: dict[Context, DeviceExecutor] = {}
"""Executors of the open devices; others only read it."""
_lock = threading.Lock()


def _forget(context: Context) -> None:
    with _lock:
        executor = EXECUTORS.pop(context, None)
    if executor is not None:
        executor.close()


def _start_afresh() -> None:
    """In a forked child the objects belong to the parent, whose threads may hold the lock."""
    global _lock
    EXECUTORS.clear()
    _lock = threading.Lock()


call_before_close(_forget)
os.register_at_fork(after_in_child=_start_afresh)

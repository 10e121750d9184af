"""`Lowering`: how one device computes an operation; `Steps`: its launches and work."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any, Protocol, TypeAlias

from ubridge.core.kernel_def import Configuration, Kernel, KernelDef
from ubridge.core.layout import Layout
from ubridge.core.operation import Family, Op
from ubridge.core.prepared import Launch, Prepared, Source, Work
from ubridge.core.product import MatmulChoice, MatmulKernel
from ubridge.core.question import Question
from uhal import Device, DeviceLimits, DType, Passed
from uhal.errors import NotSupportedError

_ALIGNMENT = 256
"""Alignment in bytes: more than any kernel's widest load."""
_RESULT, _SCRATCH = -1, -2


class Memory:
    """An operand, the result, scratch, or a part of such memory.

    It is like a buffer without an address.
    """

    __slots__ = {
        "_index": None,
        "_start": None,
        "_whole": None,
        "dtype": "The element type.",
        "size": "Elements that the operation may use.",
    }

    def __init__(
        self, index: int, start: int, size: int, dtype: DType, is_whole: bool = False
    ) -> None:
        self._index = index
        self._start = start
        self._whole = is_whole
        self.size = size
        self.dtype = dtype

    def __getitem__(self, part: slice) -> Memory:
        start = part.start or 0
        stop = self.size if part.stop is None else part.stop
        if start == 0 and stop == self.size:
            return self
        return Memory(
            self._index, self._start + start * self.dtype.itemsize, stop - start, self.dtype
        )

    def view(self, dtype: DType) -> Memory:
        """Return the same bytes as elements of another type."""
        if dtype is self.dtype:
            return self
        size = self.size * self.dtype.itemsize // dtype.itemsize
        return Memory(self._index, self._start, size, dtype)

    @property
    def passed(self) -> Passed:
        """The memory's name in a step."""
        if self._index == _SCRATCH:
            return Passed.scratch(self._start, self.size, self.dtype)
        part = () if self._whole else (self._start, self.size, self.dtype)
        return (
            Passed.result(*part) if self._index == _RESULT else Passed.operand(self._index, *part)
        )


Given = Source | Memory
"""An argument of a kernel."""


class LoweringDevice(Protocol):
    """The kernels and lowerings of one device."""

    device: Device

    def kernel(
        self, question: Question, definition: KernelDef, dtype: DType, other: DType | None
    ) -> Kernel:
        """Return a kernel for elements of `dtype`, loaded."""

    def lowering(self, op: Op) -> Lowering:
        """Return the device's lowering of an operation."""


class Steps:
    """The steps of one operation: a question or a part of one."""

    def __init__(self, question: Question, device: LoweringDevice) -> None:
        """Begin without steps."""
        self.question = question
        self.device = device
        self.kernel: KernelDef | None = None
        """Default kernel of `launch`."""
        dtype, layout = question.result
        self.result = Memory(_RESULT, 0, layout.extent, dtype, is_whole=True)
        self.operands = [
            Memory(index, 0, layout.extent, dtype, is_whole=True)
            for index, (dtype, layout) in enumerate(question.operands)
        ]
        self._numbers: Sequence[Given] | None = None
        """Numbers passed to `run`; `None` for the numbers of the call."""
        self._whole = self
        self._steps: list[Launch | Work] = []
        self._scratch = 0
        self._is_beyond_launches = False
        self.taken_by = ""
        """For a product, the kernel that computes it."""

    @property
    def limits(self) -> DeviceLimits:
        """Limits of the device for memory and launches."""
        return self.device.device.limits

    def number(self, index: int = 0) -> Given:
        """Return a number that each call passes, or that `run` was given."""
        if self._numbers is None:
            return Passed.operand(len(self.question.operands) + index)
        return self._numbers[index]

    def scratch(self, size: int, dtype: DType) -> Memory:
        """Return memory that lasts until the last step."""
        whole = self._whole
        memory = Memory(_SCRATCH, whole._scratch, size, dtype)
        whole._scratch += -(-size * dtype.itemsize // _ALIGNMENT) * _ALIGNMENT
        return memory

    def launch(
        self,
        work: tuple[int, ...],
        dtype: DType | None = None,
        other: DType | None = None,
        kernel: KernelDef | None = None,
        /,
        **arguments: Given,
    ) -> None:
        """Add a launch; arguments are named as the kernel's parameters.

        `work` holds the sizes for the kernel's geometry. `dtype` is the first operand's by default.
        `other` is the ids' type, or a cast's target type. `kernel` is by default the kernel named
        after the operation.
        """
        definition = kernel or self.kernel
        assert definition is not None, "the lowering has no kernel"
        found = self.device.kernel(self.question, definition, dtype or self.question.dtype, other)
        self.launch_entry(found.module, found.entry, found.configure(*work), **arguments)

    def launch_entry(
        self, module: str, entry: str, geometry: Configuration, /, **arguments: Given
    ) -> None:
        """Add a launch of a kernel by its entry.

        `geometry` is grid, block and shared bytes.
        """
        given = {
            name: one.passed if isinstance(one, Memory) else one for name, one in arguments.items()
        }
        self._whole._steps.append(Launch(module, entry, *geometry, given))

    def run(
        self,
        op: Op,
        operands: Sequence[tuple[Memory, Layout]],
        result: tuple[Memory, Layout],
        *numbers: Given,
        **attributes: Any,
    ) -> None:
        """Add the steps of another operation, as this device computes it.

        Layouts begin with their memory; the result is contiguous.
        """
        target, layout = result
        question = Question(
            op,
            tuple([(memory.dtype, lies) for memory, lies in operands]),
            (target.dtype, layout),
            tuple(attributes.items()),
            len(numbers),
            self.question.is_capturable,
        )
        part = copy(self)
        part.question = question
        part.operands = [memory for memory, _ in operands]
        part.result = target
        part._numbers = numbers
        part.add()

    def add(self) -> None:
        """Add the steps of the question by the device's lowering."""
        lowering = self.device.lowering(self.question.op)
        self.kernel = lowering.kernel
        lowering.prepare(self.question, self)

    def work(
        self, run: Callable[..., None], *memory: Memory, is_beyond_launches: bool = True
    ) -> None:
        """Add work of the host, a function `run`.

        Work that reads only host data does not count as beyond launches.
        """
        whole = self._whole
        whole._steps.append(Work(run, tuple(one.passed for one in memory)))
        whole._is_beyond_launches |= is_beyond_launches

    def prepared(self) -> Prepared:
        """Return the steps of the question."""
        return Prepared(
            self.question,
            tuple(self._steps),
            self._scratch,
            self._is_beyond_launches,
            self.taken_by,
        )


class Lowering(ABC):
    """Implementation of an operation on one device. Any thread may use it.

    The engine has checked the question. Dtypes and sizes fit, memory begins at its layout's first
    element, and nothing is empty. Results are contiguous, and share no memory with operands unless
    the operation allows overlap.
    """

    kernel: KernelDef | None = None
    """The kernels named after the operation, if any."""

    of_one_token = False
    """Whether cache operations take only one token at a time."""

    def on(self, device: LoweringDevice) -> Lowering:
        """Return the lowering for one device.

        The result is this object, or an object with the device's state.

        `device` is its `DeviceExecutor`. Called once for each device and operation.
        """
        return self

    @abstractmethod
    def prepare(self, question: Question, steps: Steps) -> None:
        """Add the steps of a question.

        Raises `NotSupportedError` if there is no kernel, `ArgumentTypeError` if only the element
        type lacks a kernel.
        """

    def explain(self, question: Question) -> MatmulChoice:
        """Return the kernel chosen for a question, with the reasons."""
        raise NotSupportedError(f"{question.op.name}: there is one kernel, so none is chosen")

    @property
    def choices(self) -> Sequence[MatmulKernel]:
        """The kernels for a question, in order of preference.

        The sequence is empty if there is only one kernel.
        """
        return ()

    def close(self) -> None:
        """Release the lowering's objects other than memory. The device is still open."""


class Launches(Lowering):
    """A lowering without state: a function adds the steps."""

    def __init__(
        self, add: Callable[[Question, Steps], None], kernel: KernelDef | None = None
    ) -> None:
        """`add` has the arguments of `prepare`; `kernel` is the default kernel of
        `steps.launch`.
        """
        self._add = add
        self.kernel = kernel

    def prepare(self, question: Question, steps: Steps) -> None:
        """Add the steps of a question."""
        self._add(question, steps)


Lowerings: TypeAlias = Mapping[Family | Op, Lowering]
"""Lowerings by operation, or by family for operations without their own lowering."""

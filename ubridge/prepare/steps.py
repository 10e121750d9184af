"""Collects the steps of an operation while it is prepared, and the memory they use."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ubridge.core.op_table import Op
from ubridge.core.prepared import Launch, Prepared, Source, Work
from ubridge.core.question import Question
from ubridge.device.kernels import DeviceKernels
from uhal import DType, Passed

_ALIGNMENT = 256
"""Bytes; more than any kernel's widest load."""
_RESULT, _SCRATCH = -1, -2


class Memory:
    """An operand, the result, scratch, or a part of one: like a buffer, but without an address."""

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
        """How a step names it."""
        if self._index == _SCRATCH:
            return Passed.scratch(self._start, self.size, self.dtype)
        part = () if self._whole else (self._start, self.size, self.dtype)
        return (
            Passed.result(*part) if self._index == _RESULT else Passed.operand(self._index, *part)
        )


Given = Source | Memory
Arguments = dict[str, Given]
"""A kernel's arguments, by the names of its parameters."""


class Steps:
    """The steps of one operation, as they are added."""

    def __init__(self, question: Question, kernels: DeviceKernels) -> None:
        self.question = question
        dtype, layout = question.result
        self.result = Memory(_RESULT, 0, layout.extent, dtype, is_whole=True)
        self.operands = [
            Memory(index, 0, layout.extent, dtype, is_whole=True)
            for index, (dtype, layout) in enumerate(question.operands)
        ]
        self._kernels = kernels
        self._steps: list[Launch | Work] = []
        self._scratch = 0
        self._is_beyond_launches = False
        self.taken_by = ""
        """For a product, the kernel that takes it."""

    def number(self, index: int = 0) -> Passed:
        """Return a number that each call passes."""
        return Passed.operand(len(self.operands) + index)

    def scratch(self, size: int, dtype: DType) -> Memory:
        """Return memory that lasts until the last step."""
        memory = Memory(_SCRATCH, self._scratch, size, dtype)
        self._scratch += -(-size * dtype.itemsize // _ALIGNMENT) * _ALIGNMENT
        return memory

    def launch(
        self,
        op: Op,
        dtype: DType,
        work: tuple[int, ...],
        arguments: Arguments,
        other: DType | None = None,
    ) -> None:
        """Add a launch; `work` holds the sizes that the row's geometry takes."""
        kernel = self._kernels.kernel(op, dtype, other)
        geometry = kernel.configure(*work)
        self.launch_entry(kernel.module, kernel.entry, geometry, arguments)

    def launch_entry(
        self,
        module: str,
        entry: str,
        geometry: tuple[int | tuple[int, int, int], int | tuple[int, int, int], int],
        arguments: Mapping[str, Given],
    ) -> None:
        """Add a launch of a kernel that has no row; geometry is grid, block and shared bytes."""
        given = {
            name: one.passed if isinstance(one, Memory) else one for name, one in arguments.items()
        }
        self._steps.append(Launch(module, entry, *geometry, given))

    def work(
        self, run: Callable[..., None], *memory: Memory, is_beyond_launches: bool = True
    ) -> None:
        """Add work of the host.

        `run` is called with the executor, the stream and the buffers. Work that only reads what the
        host knows already does not count as beyond launches.
        """
        self._steps.append(Work(run, tuple(one.passed for one in memory)))
        self._is_beyond_launches |= is_beyond_launches

    def prepared(self) -> Prepared:
        """Return the steps as the answer to the question."""
        return Prepared(
            self.question,
            tuple(self._steps),
            self._scratch,
            self._is_beyond_launches,
            self.taken_by,
        )


__all__ = ["Arguments", "Given", "Memory", "Steps"]

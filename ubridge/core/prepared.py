"""The answer to a question: launches, their arguments, and their order.

The answer holds no object of a device. Arguments are named as the kernel's own parameters; the
loaded image's signature gives their order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from ubridge.core.question import Question
from uhal import Passed

Dim3: TypeAlias = int | tuple[int, int, int]


class Words(NamedTuple):
    """An array of u64 in device memory, shared by equal contents; kernels read it as `dtype`."""

    words: tuple[int, ...]
    dtype: str = "u64"


class Elements(NamedTuple):
    """Elements in device memory. Equal contents share one buffer."""

    dtype: str
    data: bytes


Source: TypeAlias = int | float | Passed | Words | Elements | None
"""Source of an argument: the call, memory kept on the device, or a number."""


class Launch(NamedTuple):
    """One launch of a kernel."""

    module: str
    entry: str
    grid: Dim3
    block: Dim3
    shared: int
    """Bytes."""
    arguments: Mapping[str, Source]
    """Arguments by the names of the kernel's parameters."""


class Work(NamedTuple):
    """Work of the host between launches: it may wait, ask further questions, call a library."""

    run: Callable[..., None]
    """Called with the executor, the stream, and the memory below."""
    memory: tuple[Passed, ...]


class Prepared(NamedTuple):
    """All steps of an operation, for any buffers."""

    question: Question
    steps: tuple[Launch | Work, ...]
    scratch: int
    """Bytes of scratch memory that last from the first step to the last."""
    is_beyond_launches: bool
    """Whether the operation copies by the runtime, computes on the host or calls a library.

    Such an operation cannot be captured.
    """
    taken_by: str
    """Name of a product's kernel in the counters; empty for other operations."""

    @property
    def launches(self) -> tuple[Launch, ...]:
        """The launches among the steps."""
        return tuple(step for step in self.steps if isinstance(step, Launch))


def part_of(given: Any, passed: Passed) -> Any:
    """Return the part of a buffer that a step uses, or the whole buffer."""
    if passed.size < 0:
        return given
    nbytes = passed.size * passed.dtype.itemsize
    whole = given if given.dtype.itemsize == 1 else given.view("u8")
    return whole[passed.start : passed.start + nbytes].view(passed.dtype)

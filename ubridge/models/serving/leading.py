"""Batches of a model that is split among ranks: rank 0 leads, the other ranks follow its steps.

Before each step rank 0 broadcasts the numbers that the step reads. The other ranks then run the
same step on their shares of the weights and pages. They keep no requests and choose no tokens.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from ubridge.models.body import Tensor
from ubridge.models.decoder import Decoder
from ubridge.models.paging import PageCopy, PagedCache
from ubridge.models.serving.batch import PagedModel
from uhal import DeviceBuffer, DType
from uhal.collectives import Communicator
from uhal.dtypes import as_dtype
from uhal.errors import DeviceError

Numbers = npt.NDArray[np.int64]
_OPEN, _COPY, _READ, _CLOSE = range(4)
"""Kinds of messages: the first number of a message. The step's arguments follow."""
_FIRST = 1024
"""Numbers of a message's first broadcast. A longer message has a second broadcast."""
_DTYPES = ("f32", "f16", "bf16", "i8", "f8e4m3")
"""Dtypes of pools by their number in a message."""


class LeadingModel(PagedModel):
    """Rank 0's share of the layers over pages; each of its steps is a step of all ranks.

    After a failure the ranks may disagree. So a failure aborts the communicator, and later steps
    raise `DeviceError`.
    """

    def __init__(
        self,
        group: Communicator,
        body: Decoder,
        cache: PagedCache,
        sequences: int,
        context: int,
        dtype: DType,
    ) -> None:
        """Allocate pools as `PagedModel` does; the other ranks do the same."""
        super().__init__(body, cache, sequences, context, dtype)
        self._group = group
        self._failure = ""
        kept = _DTYPES.index(dtype.name)
        with self._told(_OPEN, cache.pages, cache.page_size, sequences, context, kept):
            pass

    @property
    def is_open(self) -> bool:
        """Whether the other ranks wait for a step."""
        return bool(self.pools)

    def copy_pages(self, copies: Sequence[PageCopy]) -> None:
        """Copy pages of all layers on all ranks, in order."""
        if copies:
            with self._told(_COPY, *(page for one in copies for page in one)):
                super().copy_pages(copies)

    def read(self, numbers: Numbers, wanted: Sequence[int], is_few: bool) -> Tensor:
        """Run a batch on all ranks; return the logits of the wanted rows."""
        with self._told(_READ, is_few, len(wanted), *wanted, then=numbers):
            return super().read(numbers, wanted, is_few)

    def close(self) -> None:
        """Free the pools of all ranks; the other ranks return from `follow`."""
        if self.is_open and not self._failure:
            with self._told(_CLOSE):
                pass
        super().close()

    @contextmanager
    def _told(self, *numbers: int, then: Numbers | Sequence[int] = ()) -> Iterator[None]:
        if self._failure:
            raise DeviceError(
                "Engine: expected all ranks of the group, but an earlier step failed: "
                f"{self._failure}. Close the engine, and start all ranks again."
            )
        try:
            self._group.check()
            _send(self._group, np.concatenate([np.array(numbers, np.int64), then]))
            yield
            self._group.wait(math.inf)
        except BaseException as error:
            self._failure = f"{type(error).__name__}: {error}"
            self._group.abort()
            raise


def follow(group: Communicator, body: Decoder) -> None:
    """Run rank 0's steps with this rank's layers, until rank 0 closes its engine.

    Raises `DeviceError` after a failure of another rank. A failure of this rank aborts the
    communicator.
    """
    try:
        _, pages, size, sequences, context, kept = _receive(group).tolist()
        dtype = as_dtype(_DTYPES[kept])
        paged = PagedModel(body, PagedCache(pages, size), sequences, context, dtype)
        while True:
            kind, *_ = message = _receive(group)
            if kind == _CLOSE:
                break
            if kind == _COPY:
                pairs = message[1:].reshape(-1, 2).tolist()
                paged.copy_pages([PageCopy(source, target) for source, target in pairs])
            else:
                is_few, count = bool(message[1]), int(message[2])
                paged.read(message[3 + count :], message[3 : 3 + count].tolist(), is_few)
        paged.close()
    except BaseException:
        group.abort()
        raise


def _send(group: Communicator, message: Numbers) -> None:
    first = np.zeros(_FIRST, np.int64)
    first[0] = message.size
    head = message[: _FIRST - 1]
    first[1 : 1 + head.size] = head
    group.broadcast(DeviceBuffer.from_numpy(first))
    if message.size > head.size:
        group.broadcast(DeviceBuffer.from_numpy(message[head.size :]))


def _receive(group: Communicator) -> Numbers:
    first = _received(group, _FIRST)
    size = int(first[0])
    head = first[1 : 1 + size]
    if size == head.size:
        return head
    return np.concatenate([head, _received(group, size - head.size)])


def _received(group: Communicator, count: int) -> Numbers:
    buffer = DeviceBuffer.uninitialized(count, "i64")
    group.broadcast(buffer)
    group.wait(math.inf)
    return buffer.to_numpy()

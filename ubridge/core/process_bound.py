"""Objects that belong to one process: errors of `pickle` and `copy` name data to send instead."""

from __future__ import annotations

from typing import ClassVar, NoReturn


class ProcessBound:
    """Base of objects that hold a device's memory or kernels."""

    __slots__ = ()
    _instead: ClassVar[str]
    """Advice about the data to send to another process."""

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__}: expected no pickle or copy of an object of this process. "
            f"{self._instead}"
        )

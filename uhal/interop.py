"""What lets memory leave this process.

The exchange with other libraries is built into the types: `DeviceBuffer` and `Stream` speak DLPack,
`__cuda_array_interface__` and `__cuda_stream__`, and launches take other libraries' tensors and
streams as they are. docs/guide/interop.md tells of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias

from uhal._lane import Stream

__all__ = ["CudaStream", "CupyStream", "IpcHandle", "StreamLike", "TorchStream"]


class CudaStream(Protocol):
    """Another library's stream by CUDA's protocol. torch's and CuPy's are taken too."""

    def __cuda_stream__(self) -> tuple[int, int]:
        """(version, handle)."""


class TorchStream(Protocol):
    """torch.cuda.Stream."""

    @property
    def cuda_stream(self) -> int:
        """The handle."""


class CupyStream(Protocol):
    """cupy.cuda.Stream."""

    @property
    def ptr(self) -> int:
        """The handle."""


StreamLike: TypeAlias = Stream | CudaStream | TorchStream | CupyStream
"""What is taken as a stream: ours, and on CUDA other libraries' of the same device."""


@dataclass(frozen=True)
class IpcHandle:
    """A buffer as another process of this machine can open it; plain data, it can be pickled.

    Made by `DeviceBuffer.ipc_handle`, opened by `DeviceBuffer.from_ipc_handle`. It keeps nothing
    alive: the process that made it must keep the buffer as long as another one uses it.
    """

    backend: str
    native: bytes
    """The driver's own handle, of the allocation the buffer lies in."""
    offset: int
    """Bytes from the start of that allocation."""
    size: int
    """Elements."""
    dtype: str

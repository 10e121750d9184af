"""Shares memory with other processes.

Other libraries need no function of this module. `DeviceBuffer` and `Stream` implement DLPack,
`__cuda_array_interface__` and `__cuda_stream__`, and launches accept other libraries' tensors and
streams. See docs/guide/interop.md.
"""

from __future__ import annotations

from typing import TypeAlias

from uhal._lane import Stream
from uhal.foreign_streams import CudaStream, CupyStream, ForeignStream, TorchStream
from uhal.records import IpcHandle

__all__ = ["CudaStream", "CupyStream", "IpcHandle", "StreamLike", "TorchStream"]


StreamLike: TypeAlias = Stream | ForeignStream
"""Accepted streams: uhal's, and on CUDA other libraries' streams of the same device."""

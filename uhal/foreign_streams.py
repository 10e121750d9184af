"""Protocols of other libraries' streams."""

from __future__ import annotations

from typing import Protocol, TypeAlias


class CudaStream(Protocol):
    """Another library's stream by CUDA's protocol. uhal also takes torch's and CuPy's streams."""

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


ForeignStream: TypeAlias = CudaStream | TorchStream | CupyStream
"""Other libraries' streams that CUDA devices accept."""

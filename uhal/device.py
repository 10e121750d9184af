"""A device: what it is, its limits, its memory, and making it the current one."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, NamedTuple, TypeAlias, TypeVar, Union

from uhal import _lane, memory, registry
from uhal._refusal import describe
from uhal.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    DeviceError,
    InvalidHandleError,
    NoDeviceError,
    NotSupportedError,
)

if TYPE_CHECKING:
    from uhal.contract import DeviceLimits
    from uhal.memory import MemoryOwner

_Self = TypeVar("_Self", bound="Device")
DeviceLike: TypeAlias = Union["Device", str]
"""What is taken as a device: one, or its name, as `"cuda"` or `"cuda:1"`."""


class MemoryInfo(NamedTuple):
    """Memory of a device, in bytes."""

    free: int
    total: int


class Device:
    """One device of one backend. A value: equal to every other with its backend and ordinal.

    Creating one opens the device, once a process. `with device:` makes it current on the calling
    thread: streams, buffers and modules made inside are made on it. Any thread may use it.
    """

    __slots__ = ("_context",)

    _fixed_backend: ClassVar[str | None] = None
    _context: _lane.Context

    def __init__(self, ordinal: int | str = 0, backend: str | None = None) -> None:
        """Open device `ordinal` of `backend`, by default of the backend chosen by `Api`.

        A name stands for both: `"cuda"` for device 0 of that backend, `"cuda:1"` for device 1.
        Raises `NoDeviceError` when there is no such device or backend, `ArgumentValueError` for a
        name of another form or of another backend than `backend`.
        """
        if isinstance(ordinal, str):
            named, ordinal = _backend_and_ordinal(ordinal)
            if backend not in (None, named):
                raise ArgumentValueError(
                    f"device: expected a name of backend {backend!r}, got one of {named!r}"
                )
            backend = named
        name = resolve_backend(type(self), backend) or registry.choose()
        self._context = registry.context(name, ordinal)

    @classmethod
    def _of(cls: type[_Self], context: _lane.Context) -> _Self:
        """Wrap an open context."""
        device = object.__new__(cls)
        device._context = context
        return device

    @classmethod
    def count(cls, backend: str | None = None) -> int:
        """Return how many devices the backend has; 0 when it does not work here."""
        try:
            name = resolve_backend(cls, backend) or registry.choose()
        except NoDeviceError:
            return 0
        return len(registry.record(name).devices)

    @classmethod
    def current(cls: type[_Self]) -> _Self:
        """Return the calling thread's device, else the process default.

        `DeviceError` when there is none: `Api.quick_init` or `with device:` sets one.
        """
        return cls._of(context_for(cls, None))

    @property
    def ordinal(self) -> int:
        """The device's number in its backend, from 0."""
        return self._context.ordinal

    @property
    def backend(self) -> str:
        """The backend's name."""
        return self._context.backend_name

    @property
    def name(self) -> str:
        """The product name, as the vendor writes it."""
        return self._context.backend.device_name(self.ordinal)

    @property
    def uuid(self) -> str:
        """An identifier that stays the same from process to process."""
        return self._context.backend.device_uuid(self.ordinal)

    @property
    def limits(self) -> DeviceLimits:
        """What a launch on the device may ask for."""
        return self._context.limits

    @property
    def attributes(self) -> Mapping[str, int | str]:
        """Everything else the vendor tells, under the vendor's names."""
        return self._context.backend.device_attributes(self.ordinal)

    @property
    def closed(self) -> bool:
        """True after `close`; `Device(ordinal, backend)` opens it afresh."""
        return self._context.closed

    def can_access_peer(self, peer: Device) -> bool:
        """Return whether `enable_peer_access(peer)` can work; True for the device itself."""
        peer = _peer(peer)
        if peer.backend != self.backend:
            return False
        if peer.ordinal == self.ordinal:
            return True
        return self._context.backend.can_access_peer(self.ordinal, peer.ordinal)

    def enable_peer_access(self, peer: Device) -> None:
        """Let kernels of this device take buffers of `peer` as arguments. One way; idempotent.

        Copies between devices need no such thing. Raises `NotSupportedError` where the devices
        cannot reach each other.
        """
        peer = _peer(peer)
        if peer == self:
            return
        if not self.can_access_peer(peer):
            raise NotSupportedError(
                f"kernels of {self!r} cannot reach memory of {peer!r}; copy it, or take another "
                f"pair of devices (Device.can_access_peer)",
                backend=self.backend,
            )
        with self._context.enter():
            self._context.backend.enable_peer_access(self.ordinal, peer.ordinal)
        self._context.note_peer(peer.ordinal)

    def memory_info(self) -> MemoryInfo:
        """Return free and total memory in bytes, as the driver sees them now."""
        with self._context.enter():
            return MemoryInfo(*self._context.backend.memory_info(self.ordinal))

    def synchronize(self) -> None:
        """Wait for everything on the device. Raises an asynchronous fault of earlier work.

        Raises `IndexError` for an id out of bounds that a kernel met; the device lives on.
        """
        self._context.synchronize()
        with self._context.enter(), contextlib.suppress(NotImplementedError):
            # A vendor without such a call: our own streams have been waited for.
            self._context.backend.synchronize_device(self.ordinal)
        self._context.check_index_faults()

    def empty_cache(self) -> int:
        """Give unused pooled memory back to the driver; return the bytes freed."""
        return self._context.empty_cache()

    def pool_statistics(self) -> dict[str, int]:
        """Return bytes and counts of the memory pool by name."""
        return self._context.pool_statistics()

    def memory_stats(self) -> dict[str, int]:
        """Return the memory pool's statistics under PyTorch's names, as far as it has them."""
        return memory.statistics(self._context)

    def reset_peak_memory_stats(self) -> None:
        """Let the peaks of the statistics begin anew at what is in use now."""
        self._context.reset_peak_statistics()

    def memory_owners(self) -> list[MemoryOwner]:
        """Return which lines of Python made the buffers now in use, the largest owner first."""
        return memory.owners(self._context)

    @property
    def memory_limit(self) -> int | None:
        """Most bytes the pool takes from the driver; `None`: as many as the device has.

        Unused memory is given back to the driver before an allocation is refused with
        `OutOfMemoryError`. A limit below what is reserved stops further growth. The variable
        `UHAL_MEMORY_LIMIT` sets it when the device is opened.
        """
        return self._context.memory_limit

    @memory_limit.setter
    def memory_limit(self, limit: int | None) -> None:
        if limit is not None:
            if isinstance(limit, bool) or not isinstance(limit, int):
                raise ArgumentTypeError(
                    f"memory_limit: expected a number of bytes or None, got {describe(limit)}"
                )
            if not 0 < limit < 2**63:
                raise ArgumentValueError(
                    f"memory_limit: expected 1…2**63-1 bytes or None, got {limit}"
                )
        self._context.memory_limit = limit

    def close(self) -> None:
        """Refuse new work on the device. Objects made on it are freed as they go. Idempotent."""
        registry.close_context(self._context)

    def __enter__(self: _Self) -> _Self:
        _lane.push_context(self._context)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _lane.pop_context()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Device):
            return NotImplemented
        return (self.backend, self.ordinal) == (other.backend, other.ordinal)

    def __hash__(self) -> int:
        return hash((self.backend, self.ordinal))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.ordinal}, {self.backend!r})"

    def __reduce__(self) -> tuple[type[Device], tuple[int, str]]:
        return (type(self), (self.ordinal, self.backend))


def _peer(peer: object) -> Device:
    if not isinstance(peer, Device):
        raise ArgumentTypeError(f"peer: expected a uhal.Device, got {describe(peer)}")
    peer._context.check_usable()
    return peer


def resolve_backend(cls: type, backend: str | None) -> str | None:
    """Return the backend meant when `backend` is given to a class that may be fixed to one."""
    fixed: str | None = getattr(cls, "_fixed_backend", None)
    if fixed is None or backend is None or backend == fixed:
        return fixed or backend
    raise ArgumentValueError(f"{cls.__name__} is fixed to backend {fixed!r}, got {backend!r}")


def as_device(device: object) -> Device:
    """Return a device as it is, and for a name as `"cuda"` or `"cuda:1"` the device, opened.

    A backend's name alone means its device 0. Whatever takes `device=` takes these. Raises
    `ArgumentTypeError` for anything else, `ArgumentValueError` for a name of another form, and
    `NoDeviceError` where there is no such backend or device.
    """
    if isinstance(device, Device):
        return device
    if not isinstance(device, str):
        raise ArgumentTypeError(f"device: expected a uhal.Device, got {describe(device)}; {_NAMES}")
    return Device(device)


_NAMES = 'give one or its name, as "cuda" or "cuda:1"'


def _backend_and_ordinal(device: str) -> tuple[str, int]:
    """What a device's name says."""
    name, colon, digits = device.partition(":")
    if name not in registry.names() or (colon and not (digits.isascii() and digits.isdigit())):
        raise ArgumentValueError(
            f"device: expected a uhal.Device, got {describe(device)}; {_NAMES}, of a backend that "
            f"is one of {', '.join(registry.names())}"
        )
    return name, int(digits or 0)


def context_for(cls: type, device: object) -> _lane.Context:
    """Return the context of `device`, else of the current device, for an object of `cls`.

    A class fixed to a backend takes that backend's device 0 when the current one is not of it.
    """
    fixed: str | None = getattr(cls, "_fixed_backend", None)
    if device is None:
        context = _lane.current_context()
        if fixed is not None and (context is None or context.backend_name != fixed):
            return registry.context(fixed, 0)
        if context is None:
            raise DeviceError("no device is current: call Api.quick_init() first, or pass device=")
        return context
    device = as_device(device)
    if fixed not in (None, device.backend):
        raise InvalidHandleError(f"{cls.__name__} is fixed to backend {fixed}, got {device!r}")
    return device._context

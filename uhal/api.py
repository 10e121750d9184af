"""Chooses a backend and starts it."""

from __future__ import annotations

from typing import ClassVar

from uhal import _lane, registry
from uhal.contract import BackendRecord
from uhal.device import Device, resolve_backend
from uhal.errors import DeviceError
from uhal.habits import Guessed


class Api(metaclass=Guessed):
    """Entry to the driver.

    Every method may be called from any thread, and more than once.
    """

    _fixed_backend: ClassVar[str | None] = None

    @classmethod
    def init(cls, backend: str | None = None) -> None:
        """Choose a backend and initialise its driver; create nothing on a device.

        `backend` or the variable `UHAL_BACKEND` select a backend, without a fallback. Otherwise the
        device that ranks first decides (`uhal.registry.choose`). `NoDeviceError` when there is
        none.
        """
        registry.backend(registry.choose(resolve_backend(cls, backend)))

    @classmethod
    def quick_init(cls, ordinal: int = 0, backend: str | None = None) -> Device:
        """Open device `ordinal`, make it the process default, and return it.

        Calls `init` first.
        """
        name = registry.choose(resolve_backend(cls, backend))
        context = registry.context(name, ordinal)
        _lane.set_default_context(context)
        return context.device

    @classmethod
    def get_api_version(cls) -> str:
        """Return the chosen backend's driver version, in the vendor's format."""
        return registry.backend(cls._fixed_backend or registry.choose()).version()

    @classmethod
    def backends(cls) -> tuple[BackendRecord, ...]:
        """Return the record of each backend: whether it works here, and why."""
        return registry.records()

    @classmethod
    def current(cls) -> str:
        """Return the name of the backend in use.

        This is the current device's backend, or the backend that `init` chose.
        """
        if cls._fixed_backend is not None:
            return cls._fixed_backend
        context = _lane.current_context()
        name = context.backend_name if context is not None else registry.chosen()
        if name is None:
            raise DeviceError("no backend is chosen yet: call Api.init() or Api.quick_init()")
        return name

"""Makes a backend's own classes: `CuStream` is a `uhal.Stream` fixed to cuda.

Every backend package calls `fix` once. Without `device=` an object of a fixed class is made on the
current device if that device belongs to the backend, else on the backend's device 0.
"""

from __future__ import annotations

from dataclasses import dataclass

from uhal._lane import DeviceBuffer, Event, HostBuffer, Stream
from uhal.api import Api
from uhal.device import Device
from uhal.module import Module


@dataclass(frozen=True)
class FixedClasses:
    """The interface's classes, each fixed to one backend."""

    Api: type[Api]
    Device: type[Device]
    Stream: type[Stream]
    Event: type[Event]
    Module: type[Module]
    DeviceBuffer: type[DeviceBuffer]
    HostBuffer: type[HostBuffer]


def fix(backend_name: str, prefix: str) -> FixedClasses:
    """Return subclasses of the interface's classes, named `<prefix>Api` and so on.

    They belong to the package `<backend_name>_backend`, which must give them those names.
    """

    def subclass(base: type) -> type:
        return type(
            f"{prefix}{base.__name__}",
            (base,),
            {
                "__doc__": f"`uhal.{base.__name__}` fixed to the {backend_name} backend.",
                "__module__": f"{backend_name}_backend",
                "__slots__": (),
                "_fixed_backend": backend_name,
            },
        )

    return FixedClasses(
        Api=subclass(Api),
        Device=subclass(Device),
        Stream=subclass(Stream),
        Event=subclass(Event),
        Module=subclass(Module),
        DeviceBuffer=subclass(DeviceBuffer),
        HostBuffer=subclass(HostBuffer),
    )

"""Finds the image of a kernel module for a device, and loads it once.

The sources lie in `ubridge/kernels/<module>.cu`. For CPUs the build makes one shared library of
each in `kernels/host/<level>/`, a folder an instruction level; the best one the CPU runs is taken.
Those called `<module>.cpp` are for CPUs alone, those of a folder like `kernels/sm_80` for NVIDIA's
devices from that compute capability on. For accelerators `make kernels` makes one file of each in
`kernels/images/<backend>/`. GCUs run Ubridge's own modules (`gcu_images`), which have other names.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

from ubridge.device import gcu_images
from uhal import Device, Module, registry
from uhal._lane import Context
from uhal.contract import Chosen, ImageCandidate
from uhal.device import DeviceLike, as_device
from uhal.errors import ArgumentValueError, NotFoundError, NotSupportedError
from uhal.images import cpu_level

KERNELS = Path(__file__).resolve().parents[1] / "kernels"

CONTAINERS = {"cuda": ".fatbin", "rocm": ".hipfb"}
"""Backend to the suffix of its files, each with a module's images for every device.

The backend chooses the one for the device.
"""


_OF_ONE_BACKEND = {"cuda": "sm_*/*.cu", "host": "*.cpp"}
"""Backend to where sources lie that no other backend has images of."""


def modules(backend: str | None = None) -> tuple[str, ...]:
    """Names `load_module` knows on every backend, or on one, in alphabetical order."""
    found = list(KERNELS.glob("*.cu"))
    if backend in _OF_ONE_BACKEND:
        found += KERNELS.glob(_OF_ONE_BACKEND[backend])
    return tuple(sorted(source.stem for source in found))


def load_module(name: str, *, device: DeviceLike | None = None) -> Module:
    """Load the image of a module for `device`, the current device when none is given.

    A module is loaded once a device and stays loaded until the device is closed; every caller gets
    the same object. `module.chosen` says which image was taken and why. May be called from any
    thread, and afresh in a forked child.

    Raises `NotFoundError` for a name that `modules` does not list and for an image that is not
    built, `NotSupportedError` when there are no images for the device's backend, and
    `InvalidImageError` when none of a module is for the device.
    """
    wanted = Device.current() if device is None else as_device(device)
    known = modules(wanted.backend)
    if wanted.backend != gcu_images.BACKEND and name not in known:
        raise NotFoundError(f"no kernel module {name!r}; there are {', '.join(known)}")
    return _loaded.get(name, wanted)


class _LoadedModules:
    """The modules of every open device, by backend, ordinal and name."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._modules: dict[tuple[str, int, str], Module] = {}

    def get(self, name: str, device: Device) -> Module:
        key = (device.backend, device.ordinal, name)
        with self._lock:
            module = self._modules.get(key)
            if module is None or module.closed or module.device._context is not device._context:
                module = _load(name, device)
                self._modules[key] = module
            return module

    def forget(self, context: Context) -> None:
        """Let go of the modules of a device that is about to be closed."""
        with self._lock:
            kept = {
                key: module
                for key, module in self._modules.items()
                if module.device._context is not context
            }
            self._modules = kept


def _load(name: str, device: Device) -> Module:
    if device.backend == "host":
        path, chosen = _host_image(name)
        return Module.from_file(path, device=device, chosen=chosen)
    if device.backend == gcu_images.BACKEND:
        return Module.from_file(gcu_images.find(name), device=device)
    suffix = CONTAINERS.get(device.backend)
    if suffix is None:
        raise NotSupportedError(
            f"module {name!r} has no image for the {device.backend} backend in this version"
        )
    path = KERNELS / "images" / device.backend / f"{name}{suffix}"
    if not path.exists():
        raise NotFoundError(f"module {name!r} was not compiled for {device.backend}: make kernels")
    return Module.from_file(path, device=device)


def _host_image(name: str) -> tuple[Path, Chosen]:
    """The best library that is built and that this CPU runs, and why it is that one."""
    best: Path | None = None
    candidates = []
    for level in dict.fromkeys((*cpu_level.machine_levels(name), cpu_level.GENERIC)):
        path = KERNELS / "host" / level.name / f"{name}.so"
        accepted = False
        try:
            refusal = cpu_level.refusal(level)
        except ValueError as error:
            raise ArgumentValueError(str(error)) from None
        if refusal:
            reason = refusal
        elif not path.exists():
            reason = "not built"
        elif best is not None:
            reason = "a better one was found"
        else:
            best = path
            accepted = True
            reason = "the best one that is built and that this CPU runs"
        candidates.append(ImageCandidate(f"{name} for {level.name}", accepted, reason))
    if best is None:
        listed = "; ".join(f"{one.description}: {one.reason}" for one in candidates)
        raise NotFoundError(
            f"no image of module {name!r} for this CPU ({listed}). "
            "Build it: python setup.py build_ext --inplace"
        )
    chosen = next(one for one in candidates if one.accepted)
    return best, Chosen(chosen.description, chosen.reason, tuple(candidates))


_loaded = _LoadedModules()


def _forget(context: Context) -> None:
    _loaded.forget(context)


def _start_afresh() -> None:
    """In a forked child: the modules are the parent's, and one of its threads may hold the lock."""
    global _loaded
    _loaded = _LoadedModules()


registry.call_before_close(_forget)
os.register_at_fork(after_in_child=_start_afresh)

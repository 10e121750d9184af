"""Finds the image of a kernel module for a device, and loads it once.

The sources are `ubridge/kernels/<module>.cu`. For CPUs the build compiles each source to a shared
library in `kernels/host/<level>/`, one folder for each instruction level. The library of the best
level that the CPU supports is loaded. A source `<module>.cpp` is for CPUs alone; a source in a
folder such as `kernels/sm_80` is for NVIDIA's devices from that compute capability on. For
accelerators `make kernels` compiles each source to a file in `kernels/images/<backend>/`. GCUs run
Ubridge's own modules (`gcu_images`), which have other names.
"""

from __future__ import annotations

import difflib
import os
import threading
from collections.abc import Sequence
from pathlib import Path

from ubridge.device.host import HOST
from ubridge.device.registry import Image, kernels_of
from uhal import Device, Module
from uhal.contract import Chosen, ImageCandidate
from uhal.device import DeviceLike, as_device
from uhal.errors import ArgumentValueError, InvalidImageError, NotFoundError
from uhal.frameworks import Context, call_before_close
from uhal.images import cpu_level

KERNELS = Path(__file__).resolve().parents[1] / "kernels"


class ImageFolder:
    """Images in a folder, one file for each module: `<module><suffix>`."""

    def __init__(self, folder: Path, suffix: str, advice: str) -> None:
        """`advice` ends the message about a missing file: how to make or install the file."""
        self._folder = folder
        self._suffix = suffix
        self._advice = advice

    def modules(self) -> Sequence[str]:
        """Return the names of the files, without the suffix."""
        found = (path.name for path in self._folder.glob(f"*{self._suffix}"))
        return sorted(name.removesuffix(self._suffix) for name in found)

    def find(self, module: str, device: Device) -> Image:
        """Return the file of a module, the same for every device."""
        path = self._folder / f"{module}{self._suffix}"
        if path.is_file():
            return Image(path)
        _require_known(module, self.modules())
        raise NotFoundError(
            f"module {module!r} was not compiled for {device.backend}: {self._advice}"
        )


class ShippedImages(ImageFolder):
    """The files made by `make kernels`: one for each source, with several images.

    The backend chooses the image for the device.
    """

    def __init__(self, backend: str, suffix: str, own: str = "") -> None:
        """`own` is a pattern of sources for this backend alone."""
        super().__init__(KERNELS / "images" / backend, suffix, "make kernels")
        self._own = own

    def modules(self) -> Sequence[str]:
        """Return the names of the sources."""
        return _sources(self._own)


class HostImages:
    """The shared libraries for CPUs, made by the build."""

    def modules(self) -> Sequence[str]:
        """Return the names of the sources."""
        return _sources("*.cpp")

    def find(self, module: str, device: Device) -> Image:
        """Return the best built library for this CPU, and the reason."""
        _require_known(module, self.modules())
        return Image(*_host_image(module))


def modules(backend: str | None = None) -> tuple[str, ...]:
    """Return the names that `load_module` accepts, sorted."""
    return tuple(_sources() if backend is None else kernels_of(backend).images.modules())


def load_module(name: str, *, device: DeviceLike | None = None) -> Module:
    """Load a module's image for `device`.

    The default is the current device.

    A module is loaded once per device and stays loaded until the device is closed; every caller
    gets the same object. `module.chosen` names the image and the reason. May be called from any
    thread, and again in a forked child.

    Raises `NotFoundError` for a name that is not in `modules()` and for an image that is not built.
    Raises `NotSupportedError` when there are no images for the device's backend, and
    `InvalidImageError` when no image of the module fits the device.
    """
    at = Device.current() if device is None else as_device(device)
    images = kernels_of(at.backend).images
    with _lock:
        of_device = _loaded.setdefault(at.context, {})
        module = of_device.get(name)
        if module is None or module.closed:
            image = images.find(name, at)
            module = Module.from_file(image.path, device=at, chosen=image.chosen)
            of_device[name] = module
        return module


def has_module(name: str, device: Device) -> bool:
    """Return whether the device's backend has a module and the device can run it."""
    try:
        load_module(name, device=device)
    except (NotFoundError, InvalidImageError):
        return False
    return True


def _sources(own: str = "") -> list[str]:
    """The names of the sources for every backend, and of one backend's additional sources."""
    found = [*KERNELS.glob("*.cu"), *(KERNELS.glob(own) if own else ())]
    return sorted(source.stem for source in found)


def _require_known(module: str, known: Sequence[str]) -> None:
    if module not in known:
        close = difflib.get_close_matches(str(module), known, n=3)
        advice = f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(known)}"
        raise NotFoundError(f"no kernel module {module!r}; {advice}")


_BETTER = "a better one was found"
_BEST = "the best one that is built and that this CPU runs"


def _host_image(name: str) -> tuple[Path, Chosen]:
    """The best built library for this CPU, and the reason for the choice."""
    best: Path | None = None
    candidates = []
    for level in dict.fromkeys((*cpu_level.machine_levels(name), cpu_level.GENERIC)):
        path = KERNELS / HOST / level.name / f"{name}.so"
        try:
            refusal = cpu_level.refusal(level)
        except ValueError as error:
            raise ArgumentValueError(str(error)) from None
        why_not = refusal or ("" if path.exists() else "not built")
        why_not = why_not or ("" if best is None else _BETTER)
        best = best or (None if why_not else path)
        candidates.append(ImageCandidate(f"{name} for {level.name}", not why_not, why_not or _BEST))
    if best is None:
        listed = "; ".join(f"{one.description}: {one.reason}" for one in candidates)
        raise NotFoundError(
            f"no image of module {name!r} for this CPU ({listed}). "
            "Build it: python setup.py build_ext --inplace"
        )
    chosen = next(one for one in candidates if one.accepted)
    return best, Chosen(chosen.description, chosen.reason, tuple(candidates))


_loaded: dict[Context, dict[str, Module]] = {}
"""The modules of every open device, by name."""
_lock = threading.Lock()


def _forget(context: Context) -> None:
    """Release the modules of a device that is about to be closed."""
    with _lock:
        _loaded.pop(context, None)


def _start_afresh() -> None:
    """In a forked child the modules belong to the parent, whose threads may hold the lock."""
    global _loaded, _lock
    _loaded, _lock = {}, threading.Lock()


call_before_close(_forget)
os.register_at_fork(after_in_child=_start_afresh)

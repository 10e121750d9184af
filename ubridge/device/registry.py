"""The registry of backends for ubridge: their lowerings and the places of their images.

The table `OURS` names the modules of our backends; each module is imported when a device of the
backend is first used. Another distribution names its `BackendKernels` under the entry-point group
`ubridge.backends`. Everything here may be called from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, Protocol

from ubridge.core.lowering import Lowerings
from ubridge.core.operation import Family, Op
from ubridge.core.product import MatmulKernel
from uhal import Device
from uhal.contract import Chosen
from uhal.errors import ArgumentTypeError, NotSupportedError

GROUP = "ubridge.backends"
"""The entry-point group of other distributions: backend = "package:BackendKernels object"."""


class Image(NamedTuple):
    """The image of a kernel module that a device is to load."""

    path: Path
    """A file in the format of `Backend.module_load`; beside it may lie a sidecar, `<path>.sig`."""
    chosen: Chosen | None = None
    """Reason for the choice among several images; `None` if the backend reports it."""


class Images(Protocol):
    """Finder of images for a backend's kernel modules."""

    def modules(self) -> Sequence[str]:
        """Return the names of the modules, in alphabetical order."""

    def find(self, module: str, device: Device) -> Image:
        """Return the image of a module for a device.

        The image is loaded once and kept.

        Raises `NotFoundError` for a module that does not exist; for a missing image the message
        says how to get it.
        """


def _none(executor: object) -> Sequence[MatmulKernel]:
    """Return no kernels: all products go to `tiled`."""
    return ()


@dataclass(frozen=True)
class BackendKernels:
    """The kernels of one backend, for all its devices.

    It is version 2 of the contract.
    """

    lowerings: Lowerings
    """Lowerings by operation or family. An operation without a lowering is refused.

    Use `CANDLE` for kernels with the parameters of `ubridge/kernels/*.cu`.
    """
    images: Images
    """Finder of the modules' images."""
    products: Callable[..., Sequence[MatmulKernel]] = _none
    """Called with the `DeviceExecutor`; returns the `ProductKernel`s that precede `tiled`.

    The lowering of `CANDLE` tries these kernels in this order.
    """

    def __post_init__(self) -> None:
        """Refuse a lowering whose key is neither an operation nor a family."""
        unknown = [one for one in self.lowerings if not isinstance(one, (Op, Family))]
        if unknown:
            raise ArgumentTypeError(
                f"lowerings: expected operations and families as keys, got {unknown[0]!r}; take "
                "them from ubridge.OPS"
            )


OURS = {
    "cuda": "ubridge.prepare.backends:CUDA",
    "rocm": "ubridge.prepare.backends:ROCM",
    "host": "ubridge.prepare.backends:HOST",
    "opencl": "ubridge.prepare.backends:OPENCL",
    "webgpu": "ubridge.prepare.backends:OPENCL",
    "tops": "ubridge.prepare.gcu.backend:TOPS",
}
"""Maps a backend's name to the module and the name of its `BackendKernels`."""

_loaded: dict[str, BackendKernels] = {}


def kernels_of(backend: str) -> BackendKernels:
    """Return the kernels of a backend, by its name.

    Raises `NotSupportedError` for a backend without kernels, and `ImportError` for an entry point
    that names something else.
    """
    found = _loaded.get(backend)
    if found is None:
        named = OURS.get(backend)
        if named is None:
            found = _installed(backend)
        else:
            module, _, name = named.partition(":")
            found = getattr(import_module(module), name)
        _loaded[backend] = found
    return found


def _installed(backend: str) -> BackendKernels:
    # Imported late, since it takes longer than importing uhal.
    from importlib.metadata import entry_points

    named = {one.value: one for one in entry_points(group=GROUP, name=backend)}
    if not named:
        raise NotSupportedError(
            f"ubridge has no kernels for the {backend} backend, only for {', '.join(OURS)}; "
            f"a distribution brings them by an entry point of the group {GROUP}",
            backend=backend,
        )
    if len(named) > 1:
        raise ImportError(
            f"the entry point {backend} of group {GROUP} is {' and '.join(sorted(named))}: "
            "uninstall all distributions but one that have it"
        )
    value, entry_point = named.popitem()
    found = entry_point.load()
    if not isinstance(found, BackendKernels):
        raise ImportError(
            f"the entry point {backend} = {value} of group {GROUP}: expected a "
            f"ubridge.backends.BackendKernels, got {type(found).__name__}"
        )
    return found

"""What a backend brings to ubridge: its kernels, their convention, and where their images are.

Ours stand in a table, `ubridge.prepare.backends`. Another distribution names its `BackendKernels`
under the entry-point group `ubridge.backends`, which is read when a device of a backend that is not
ours is first used. Everything here may be called from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from ubridge.core.columns import Row
from ubridge.core.layout import Layout
from ubridge.core.op_table import FAMILIES
from ubridge.core.prepared import Prepared
from ubridge.core.product import MatmulChoice, MatmulKernel
from ubridge.core.question import Question
from uhal import Device, DType
from uhal.contract import Chosen
from uhal.errors import ArgumentValueError, NotSupportedError

GROUP = "ubridge.backends"
"""The entry-point group of other distributions: backend = "package:BackendKernels object"."""


class Image(NamedTuple):
    """The image of a kernel module that a device is to load."""

    path: Path
    """A file in the format of `Backend.module_load`; beside it may lie a sidecar, `<path>.sig`."""
    chosen: Chosen | None = None
    """Why this one was chosen, if there were several; else the backend says which one it took."""


class Images(Protocol):
    """Where the images of a backend's kernel modules are."""

    def modules(self) -> Sequence[str]:
        """Return the names of the modules, in alphabetical order."""

    def find(self, module: str, device: Device) -> Image:
        """Return the image of a module for a device; it is loaded once and kept.

        Raises `NotFoundError` for a module that does not exist; for a missing image the message
        says how to get it.
        """


class Preparer(Protocol):
    """Answers questions for one device by its kernels' convention."""

    def prepare(self, question: Question) -> Prepared:
        """Return what is launched; refuse a question that no kernel answers."""

    def matmul_choice(self, dtype: DType, left: Layout, right: Layout) -> MatmulChoice:
        """Say which kernel takes products of matrices; the layouts have one batch."""

    def matmul_kernels(self) -> Sequence[MatmulKernel]:
        """Return the kernels products may go to, in order of preference."""

    def close(self) -> None:
        """Give back what it holds besides memory. The device is still there."""


def _none(*device: object) -> Sequence[MatmulKernel]:
    """Return nothing: all products go to `tiled`."""
    return ()


@dataclass(frozen=True)
class BackendKernels:
    """The kernels of one backend, for every device of it."""

    rows: Mapping[str, Row]
    """By family of operations: module, entry and geometry. A family without a row is refused."""
    images: Images
    """Where the modules' images are."""
    convention: Callable[..., Preparer]
    """Called with a `DeviceExecutor` once a device; it prepares operations as launches of kernels.

    `CandleConvention` for kernels with the parameters of `ubridge/kernels/*.cu`.
    """
    product_kernels: Callable[..., Sequence[MatmulKernel]] = _none
    """Called with the executor and its convention; returns kernels of products before `tiled`.

    `CandleConvention` asks them, in this order; each is a `ProductKernel`.
    """

    def __post_init__(self) -> None:
        """Refuse a row of an unknown family."""
        unknown = sorted(self.rows.keys() - FAMILIES.keys())
        if unknown:
            raise ArgumentValueError(
                f"rows: no family of operations {', '.join(map(repr, unknown))}; there are "
                f"{', '.join(FAMILIES)}"
            )


ours: dict[str, BackendKernels] = {}
"""Backend to its kernels; `ubridge.prepare.backends` fills it."""

_others: dict[str, BackendKernels] = {}


def kernels_of(backend: str) -> BackendKernels:
    """Return the kernels of a backend, by its name.

    Raises `NotSupportedError` for a backend without kernels, and `ImportError` for an entry point
    that names something else.
    """
    found = ours.get(backend) or _others.get(backend)
    if found is None:
        found = _others[backend] = _installed(backend)
    return found


def _installed(backend: str) -> BackendKernels:
    # Importing it takes longer than importing uhal.
    from importlib.metadata import entry_points

    named = {one.value: one for one in entry_points(group=GROUP, name=backend)}
    if not named:
        raise NotSupportedError(
            f"ubridge has no kernels for the {backend} backend, only for {', '.join(ours)}; "
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

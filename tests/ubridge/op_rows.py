"""The devices that tests of operations run on, and their kernels: one row each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pytest

from build_support.gcu_table import REFUSED, entry_name
from tests.requirements import missing
from tests.sampling import SOAK
from tops_backend import entries
from ubridge import OPS, Op
from ubridge.definitions.elementwise import MASKED_FILL
from ubridge.device.images import KERNELS
from ubridge.prepare.gcu import composed

T = TypeVar("T")


@dataclass(frozen=True)
class OpRow:
    """A device under test, named as in the conformance suite."""

    name: str
    backend: str
    has: Callable[[Op, str, str | None], bool]
    """Return whether a kernel exists for an operation, a dtype, and the dtype of ids or result."""
    special_values: bool = True
    """Whether the kernels promise results for NaN and infinities."""
    ulps: float = 1
    """Tolerance of the results, as a multiple of the host's tolerance."""
    rounds_each_step: bool = False
    """Whether f16 and bf16 are rounded after each step; if so, errors have no bound."""
    adds_in_order: bool = False
    """Whether sums add one element after the other; if so, errors grow with the length."""
    promotes: bool = True
    """Whether the device has the casts and dtypes that numpy's promotions need."""
    images: str | None = None
    """Folder of the required images; a clone without them skips the row."""

    def sample(self, rng: np.random.Generator, values: Iterable[T], most: int = 3) -> list[T]:
        """Return all values on the host and in a soak, else a few: other devices compile each
        kernel."""
        every = list(values)
        if SOAK or self.name == "host" or len(every) <= most:
            return every
        return [every[index] for index in sorted(rng.permutation(len(every))[:most])]

    def require_promotions(self) -> None:
        if not self.promotes:
            pytest.skip(f"{self.backend} has kernels for few dtypes")

    def require_images(self) -> None:
        if self.images is not None and not any((KERNELS / self.images).glob("unary.*")):
            missing(f"no images of the kernels for {self.backend}: make kernels")


def _candle_has(op: Op, dtype: str, other: str | None) -> bool:
    return dtype in op.dtypes


def _webgpu_has(op: Op, dtype: str, other: str | None) -> bool:
    return dtype in op.dtypes and "f64" not in (dtype, other)


GCU_KERNELS = {"rope": "rotary", "rope_i": "rotary", "rope_thd": "rotary"}
"""Name of the GCU's operation, if it differs."""


def _gcu_has(op: Op, dtype: str, other: str | None) -> bool:
    op = OPS[GCU_KERNELS.get(op.name, op.name)]
    if op in composed.LOWERINGS or op is MASKED_FILL or op.composed is not None:
        return dtype in ("f32", "f16", "bf16")
    name = entry_name(op, dtype, other)
    return name is not None and name in entries.signatures() and name not in REFUSED


OP_ROWS = (
    OpRow("host", "host", _candle_has),
    OpRow("cuda-sim", "cuda", _candle_has, images="images/cuda"),
    OpRow("rocm-sim", "rocm", _candle_has, images="images/rocm"),
    OpRow("opencl", "opencl", _candle_has, images="images/opencl"),
    OpRow("webgpu", "webgpu", _webgpu_has, images="images/opencl"),
    # GCU kernels round f16 and bf16 after every step of softmax and norms.
    OpRow(
        "tops-sim",
        "tops",
        _gcu_has,
        special_values=False,
        promotes=False,
        ulps=4,
        rounds_each_step=True,
        adds_in_order=True,
    ),
)


def row_of(backend: str) -> OpRow:
    return next(row for row in OP_ROWS if row.backend == backend)

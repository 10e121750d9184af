"""Large products by NVIDIA's cuBLASLt, where that library is installed.

ubridge looks for the library at the first product that is large enough. The library must first
multiply two small matrices correctly, because a simulated GPU may load the library without running
its kernels. `matmul_choice` reports the reason if the library is not used.

A call of the library is not a launch of uhal: no ledger lists the call, and its faults are reported
without a name.
"""

from __future__ import annotations

import ctypes
import threading
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from ubridge.core.layout import Layout
from ubridge.core.lowering import Memory, Steps
from ubridge.core.product import Product
from ubridge.core.question import Question
from ubridge.definitions.products import MATMUL
from ubridge.device.executor import DeviceExecutor
from ubridge.prepare.matmul.kernels import ProductKernel
from uhal import DeviceBuffer, Stream, as_dtype
from uhal.abi import Header, Library, LibrarySearch, find_library
from uhal.contract import joined_reasons
from uhal.dtypes import u8
from uhal.errors import DeviceError
from uhal.frameworks import address_for
from uhal.interop import StreamLike

LIBRARY_VARIABLE = "UHAL_CUBLASLT_LIBRARY"
CANDIDATES = ("libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11")

LEAST_WORK = 1 << 27
"""Least multiplications for the library. Below, calling it from Python takes longer than the
product; estimated from the call's 10 µs, not measured on a device."""
WORKSPACE_BYTES = 32 << 20
"""The most workspace for an algorithm: NVIDIA's advice for Hopper, "cublasLtMatmul()"."""
_BEST_ALIGNMENT = 256
_TYPES = {"f16": "CUDA_R_16F", "bf16": "CUDA_R_16BF", "f32": "CUDA_R_32F", "f64": "CUDA_R_64F"}
_TRIAL = 32
"""Rows and columns of the trial's matrices."""


class CublasLtProducts(ProductKernel):
    """cuBLASLt on one device. Any thread may use it."""

    name = "cublaslt"
    reason = "NVIDIA's library, fastest for large products"
    is_library = True

    def __init__(self, executor: DeviceExecutor) -> None:
        self._executor = executor
        self._lock = threading.Lock()
        self._opened: _Opened | None = None
        self._missing: str | None = None

    def refusal(self, product: Product) -> str:
        """Say why the library cannot take a product, or is missing."""
        work = product.batch * product.m * product.n * product.k
        if work < LEAST_WORK:
            return f"{work} multiplications, and it pays from {LEAST_WORK} on"
        if product.dtype.name not in _TYPES:
            return f"for {', '.join(_TYPES)}, not {product.dtype}"
        if product.layouts is None:
            return "neither rows nor columns of neighboring elements"
        lines = zip(product.pitches, _lengths(product), strict=True)
        if any(pitch < length for pitch, length in lines):
            return "rows or columns that overlap"
        return self._unavailable()

    def prepare(self, product: Product, a: Memory, b: Memory, out: Memory, steps: Steps) -> None:
        """Add the library's call, and ubridge's own kernels in case it refuses the addresses."""
        whole = Question(
            MATMUL,
            ((a.dtype, product.operands[0]), (b.dtype, product.operands[1])),
            (out.dtype, Layout.contiguous((product.batch, product.m, product.n))),
            is_capturable=True,
        )

        def multiply(
            at: DeviceExecutor,
            stream: StreamLike | None,
            left: DeviceBuffer,
            right: DeviceBuffer,
            result: DeviceBuffer,
        ) -> None:
            assert self._opened is not None, "refusal() comes first"
            taken_by = self.name
            if not self._opened.multiply(product, left, right, result, stream):
                instead = at.ready(whole)
                instead.launch(stream, result, left, right)
                taken_by = instead.prepared.taken_by
            at.tally(taken_by).count += 1

        steps.work(multiply, a, b, out)

    def close(self) -> None:
        """Release the library's objects. The device is still open."""
        with self._lock:
            opened, self._opened = self._opened, None
            self._missing = "the device is closed"
        if opened is not None:
            # A lost device has already released the library's objects.
            with suppress(DeviceError):
                opened.close()

    def _unavailable(self) -> str:
        if self._missing is None:
            if self._executor.layouts.capturing:
                return "not opened yet, and nothing can be tried during a capture"
            with self._lock:
                if self._missing is None:
                    self._missing = self._open()
        return self._missing

    def _open(self) -> str:
        search = find_library(LIBRARY_VARIABLE, CANDIDATES)
        if search.handle is None:
            return joined_reasons(search.attempts)
        opened = None
        try:
            opened = _Opened(self._executor, search)
            opened.try_out()
        except DeviceError as error:
            if opened is not None:
                with suppress(DeviceError):
                    opened.close()
            return str(error)
        self._opened = opened
        return ""


@dataclass(frozen=True)
class _Plan:
    """The library's descriptions of a product, and its recommended algorithm."""

    description: Any
    layouts: tuple[Any, Any, Any]
    algorithm: Any
    workspace: int
    alpha: Any
    beta: Any


class _Opened:
    """A handle of the library, and its described products."""

    def __init__(self, executor: DeviceExecutor, search: LibrarySearch) -> None:
        assert search.handle is not None
        self._executor = executor
        self._context = executor.device.context
        path = search.path or search.attempts[-1].path
        self._library = Library(
            search.handle, path, _header(), status="cublasStatus_t", check=self._fail
        )
        self._constants = _header().constants
        self._lock = threading.Lock()
        self._plans: dict[tuple[Product, tuple[int, ...]], _Plan | None] = {}
        handle = ctypes.c_void_p()
        with self._context.enter():
            self._library.cublasLtCreate(ctypes.byref(handle))
        self._handle = handle

    def try_out(self) -> None:
        """Multiply two small matrices. `DeviceError` when the library fails or is wrong."""
        values = np.arange(_TRIAL * _TRIAL, dtype=np.float32).reshape(_TRIAL, _TRIAL) % 7
        x = DeviceBuffer.from_numpy(values.ravel(), device=self._executor.device)
        out = DeviceBuffer.zeros(values.size, x.dtype, device=self._executor.device)
        sizes = (_TRIAL, _TRIAL, _TRIAL, 0, _TRIAL, 1, 0, _TRIAL, 1)
        done = self.multiply(Product(as_dtype("f32"), 1, *sizes), x, x, out, None)
        # Sums of small integers are exact in any order.
        if not done or not np.array_equal(out.to_numpy().reshape(values.shape), values @ values):
            said = "came out wrong" if done else "is not supported"
            raise DeviceError(
                f"{self._library.path}: a product of two small matrices {said}",
                backend="cuda",
                call="cublasLtMatmul",
            )

    def multiply(
        self,
        product: Product,
        a: DeviceBuffer,
        b: DeviceBuffer,
        out: DeviceBuffer,
        stream: StreamLike | None,
    ) -> bool:
        """Enqueue a product, and return whether there is an algorithm for it."""
        device = self._executor.device
        queue = (
            stream
            if isinstance(stream, Stream)
            else Stream.default(device)
            if stream is None
            else Stream.from_handle(stream, device=device)
        )
        used = [a, b, out]
        addresses = [address_for(one, queue) for one in used]
        with self._context.enter():
            plan = self._plan(product, addresses)
            if plan is None:
                return False
            workspace = 0
            if plan.workspace:
                used.append(self._executor.allocate(plan.workspace, u8, queue))
                workspace = address_for(used[-1], queue)
            of_a, of_b, of_out = plan.layouts
            left, right, result = addresses
            # The library is column-major: results, operands and their order are transposed.
            self._library.cublasLtMatmul(
                self._handle,
                plan.description,
                ctypes.byref(plan.alpha),
                right,
                of_b,
                left,
                of_a,
                ctypes.byref(plan.beta),
                result,
                of_out,
                result,
                of_out,
                ctypes.byref(plan.algorithm),
                workspace,
                plan.workspace,
                queue.handle,
            )
        for one in used:
            one.record_stream(queue)
        return True

    def close(self) -> None:
        """Release all objects of the library."""
        with self._context.enter():
            for plan in self._plans.values():
                if plan is not None:
                    self._destroy(plan.description, plan.layouts)
            self._plans.clear()
            self._library.cublasLtDestroy(self._handle)

    # -- plans -----------------------------------------------------------------------------------

    def _plan(self, product: Product, addresses: list[int]) -> _Plan | None:
        alignments = tuple(_alignment(address) for address in addresses)
        key = (product, alignments)
        if key not in self._plans:
            with self._lock:
                if key not in self._plans:
                    self._plans[key] = self._make_plan(product, alignments)
        return self._plans[key]

    def _make_plan(self, product: Product, alignments: tuple[int, ...]) -> _Plan | None:
        letters = product.layouts
        assert letters is not None
        computed = "64F" if product.dtype.name == "f64" else "32F"
        description = ctypes.c_void_p()
        self._library.cublasLtMatmulDescCreate(
            ctypes.byref(description),
            self._constants[f"CUBLAS_COMPUTE_{computed}"],
            self._constants[f"CUDA_R_{computed}"],
        )
        for letter, name in zip(reversed(letters), "AB", strict=True):
            self._set(
                "MatmulDesc",
                description,
                f"CUBLASLT_MATMUL_DESC_TRANS{name}",
                ctypes.c_int32(self._constants[f"CUBLAS_OP_{letter.upper()}"]),
            )
        (a_length, b_length), (a_pitch, b_pitch) = _lengths(product), product.pitches
        a_lines = product.m * product.k // a_length
        b_lines = product.k * product.n // b_length
        layouts = (
            self._layout(product, a_length, a_lines, a_pitch, product.a_batch),
            self._layout(product, b_length, b_lines, b_pitch, product.b_batch),
            self._layout(product, product.n, product.m, product.n, product.m * product.n),
        )
        found = self._advice(description, layouts, alignments)
        if found is None:
            self._destroy(description, layouts)
            return None
        number = ctypes.c_double if computed == "64F" else ctypes.c_float
        return _Plan(description, layouts, found.algo, found.workspaceSize, number(1), number(0))

    def _destroy(self, description: Any, layouts: tuple[Any, Any, Any]) -> None:
        self._library.cublasLtMatmulDescDestroy(description)
        for layout in layouts:
            self._library.cublasLtMatrixLayoutDestroy(layout)

    def _layout(self, product: Product, length: int, lines: int, pitch: int, batch: int) -> Any:
        layout = ctypes.c_void_p()
        kind = self._constants[_TYPES[product.dtype.name]]
        self._library.cublasLtMatrixLayoutCreate(ctypes.byref(layout), kind, length, lines, pitch)
        count, offset = ctypes.c_int32(product.batch), ctypes.c_int64(batch)
        self._set("MatrixLayout", layout, "CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT", count)
        self._set("MatrixLayout", layout, "CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET", offset)
        return layout

    def _advice(
        self, description: Any, layouts: tuple[Any, Any, Any], alignments: tuple[int, ...]
    ) -> Any:
        """The library's best algorithm for these alignments and the workspace, if any."""
        of_a, of_b, of_out = layouts
        found = _header().ctype("cublasLtMatmulHeuristicResult_t")()
        count, preference = ctypes.c_int(), ctypes.c_void_p()
        prefix = "CUBLASLT_MATMUL_PREF_M"
        a, b, out = alignments
        settings = {f"{prefix}AX_WORKSPACE_BYTES": ctypes.c_uint64(WORKSPACE_BYTES)} | {
            f"{prefix}IN_ALIGNMENT_{name}_BYTES": ctypes.c_uint32(least)
            for name, least in zip("ABCD", (b, a, out, out), strict=True)
        }
        self._library.cublasLtMatmulPreferenceCreate(ctypes.byref(preference))
        try:
            for attribute, value in settings.items():
                self._set("MatmulPreference", preference, attribute, value)
            status = self._library.unchecked("cublasLtMatmulAlgoGetHeuristic")(
                self._handle,
                description,
                of_b,
                of_a,
                of_out,
                of_out,
                preference,
                1,
                ctypes.byref(found),
                ctypes.byref(count),
            )
        finally:
            self._library.cublasLtMatmulPreferenceDestroy(preference)
        if status not in (0, self._constants["CUBLAS_STATUS_NOT_SUPPORTED"]):
            self._fail("cublasLtMatmulAlgoGetHeuristic", status)
        return found if status == 0 and count.value > 0 and found.state == 0 else None

    def _set(self, kind: str, target: Any, attribute: str, value: Any) -> None:
        function = getattr(self._library, f"cublasLt{kind}SetAttribute")
        number = self._constants[attribute]
        function(target, number, ctypes.byref(value), ctypes.sizeof(value))

    def _fail(self, call: str, code: int) -> NoReturn:
        named = (name for name, value in self._constants.items() if value == code)
        name = next((one for one in named if one.startswith("CUBLAS_STATUS_")), "unknown")
        raise DeviceError(
            f"{call}: {name} ({code}), from {self._library.path}",
            backend="cuda",
            call=call,
            code=code,
            name=name,
        )


def _lengths(product: Product) -> tuple[int, int]:
    """The lengths of a line of neighboring elements of a and of b."""
    a, b = (letter == "n" for letter in product.layouts or "nn")
    return product.k if a else product.m, product.n if b else product.k


def _alignment(address: int) -> int:
    """The alignment of an address, up to the largest that the library uses."""
    return min(address & -address or _BEST_ALIGNMENT, _BEST_ALIGNMENT)


@cache
def _header() -> Header:
    return Header.load(Path(__file__).resolve().parent / "cublaslt_abi.h")

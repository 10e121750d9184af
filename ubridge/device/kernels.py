"""The kernels of one device: found once, with the layouts and constants they are given."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from ubridge.core.launch_rows import ARGUMENTS, COLUMNS, Configuration, Configure, Row
from ubridge.core.op_table import Op
from ubridge.device.content_cache import ConstantCache
from ubridge.device.images import load_module
from ubridge.device.index_faults import IndexFaults
from ubridge.device.slice_ptr import LayoutCache
from uhal import Device, DType, Function, launch
from uhal.dtypes import ALL as ALL_DTYPES
from uhal.errors import ArgumentTypeError, NotFoundError, NotSupportedError
from uhal.interop import StreamLike


class Kernel:
    """A kernel of an operation for certain element types, ready to be launched on its device."""

    __slots__ = ("_configure", "_function", "_in_order")

    def __init__(self, function: Function, row: Row, listed: Sequence[str], configure: Configure):
        self._function = function
        self._configure = configure
        places = [listed.index(name) for name in row.arguments]
        # What a backend leaves out or takes elsewhere costs a pick; the usual order costs nothing.
        self._in_order = None if places == list(range(len(listed))) else itemgetter(*places)

    @property
    def function(self) -> Function:
        """The entry itself."""
        return self._function

    def configuration(self, *work: int) -> Configuration:
        """Return grid, block and bytes of shared memory for as much work."""
        return self._configure(*work)

    def launch(self, arguments: tuple[Any, ...], stream: StreamLike | None, *work: int) -> None:
        """Enqueue one launch.

        `arguments` are in the order of `ARGUMENTS`; `work` is what the row's geometry asks for.
        """
        grid, block, shared = self._configure(*work)
        if self._in_order is not None:
            arguments = self._in_order(arguments)
        launch(self._function, grid, block, arguments, shared, stream)


class DeviceKernels:
    """Finds the kernels of a device. Any thread may use it."""

    def __init__(self, device: Device) -> None:
        """Find nothing yet; `NotSupportedError` for a backend there are no kernels for."""
        column = COLUMNS.get(device.backend)
        if column is None:
            raise NotSupportedError(
                f"ubridge has no kernels for the {device.backend} backend, only for "
                f"{', '.join(COLUMNS)}",
                backend=device.backend,
            )
        self.device = device
        self.layouts = LayoutCache(device)
        self.constants = ConstantCache(device)
        self.index_faults = IndexFaults(device)
        self._attached: set[str] = set()
        self._rows = column
        self._kernels: dict[tuple[Op, str, str], Kernel] = {}

    def get_or_load_func(self, entry: str, module: str) -> Function:
        """Return a kernel of one of ubridge's modules, which is loaded when first asked for.

        Raises `NotFoundError` for a module or an entry that does not exist.
        """
        loaded = load_module(module, device=self.device)
        if module not in self._attached:
            self.index_faults.attach(loaded)
            self._attached.add(module)
        return loaded.get_function(entry)

    def kernel(self, op: Op, dtype: DType, other: DType | None = None) -> Kernel:
        """Return the kernel of `op` for elements of `dtype`.

        `other` is the ids' type, or the one a cast is to. Raises `ArgumentTypeError` when the
        operation has none for these element types.
        """
        key = (op, dtype.code, "" if other is None else other.code)
        found = self._kernels.get(key)
        if found is None:
            found = self._kernels[key] = self._make_kernel(op, dtype, other)
        return found

    def launch(
        self,
        function: Function,
        grid: tuple[int, int, int],
        block: int,
        arguments: tuple[Any, ...],
        stream: StreamLike | None,
    ) -> None:
        """Enqueue a kernel with a geometry that no row tells."""
        launch(function, grid, block, arguments, 0, stream)

    def _make_kernel(self, op: Op, dtype: DType, other: DType | None) -> Kernel:
        family = op.family.name
        row = self._rows.get(family)
        if row is None:
            raise NotSupportedError(
                f"{op.name}: the {self.device.backend} backend has no such kernel",
                backend=self.device.backend,
            )
        entry = row.entry.format(root=op.root, dtype=dtype.name, other=other)
        try:
            function = self.get_or_load_func(entry, row.module)
        except NotFoundError as error:
            raise self._no_kernel(op, row, entry, dtype, other) from error
        return Kernel(function, row, ARGUMENTS[family], row.geometry(self.device.limits))

    def _no_kernel(
        self, op: Op, row: Row, entry: str, dtype: DType, other: DType | None
    ) -> ArgumentTypeError:
        kernels = load_module(row.module, device=self.device).kernels
        known = [
            one.name
            for one in ALL_DTYPES
            if row.entry.format(root=op.root, dtype=one.name, other=other) in kernels
        ]
        besides = "" if other is None else f" and {other}"
        instead = f"; there are kernels for {' '.join(known)}{besides}" if known else ""
        return ArgumentTypeError(
            f"{op.name}: not supported for the dtype {dtype}{besides} on "
            f"{self.device.backend} (no kernel {entry}){instead}",
            backend=self.device.backend,
        )

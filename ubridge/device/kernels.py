"""The kernels of one device, each found once, with the layouts and constants they take."""

from __future__ import annotations

from ubridge.core.kernel_def import Kernel, KernelDef
from ubridge.core.op_table import Op
from ubridge.device.content_cache import ConstantCache
from ubridge.device.images import load_module
from ubridge.device.index_faults import IndexFaults
from ubridge.device.lowering import Lowering
from ubridge.device.registry import kernels_of
from ubridge.device.slice_ptr import LayoutCache
from uhal import Device, DeviceBuffer, DType, Function
from uhal.dtypes import ALL as ALL_DTYPES
from uhal.errors import ArgumentTypeError, NotFoundError, NotSupportedError
from uhal.interop import StreamLike


class DeviceKernels:
    """Finds the kernels of a device. Any thread may use it."""

    def __init__(self, device: Device) -> None:
        """Load nothing yet. Raises `NotSupportedError` for a backend without kernels."""
        self.backend_kernels = kernels_of(device.backend)
        self.device = device
        self.layouts = LayoutCache(device)
        self.constants = ConstantCache(device)
        self.index_faults = IndexFaults(device)
        self._attached: set[str] = set()
        self._kernels: dict[tuple[KernelDef, Op, str, str], Kernel] = {}
        self._lowerings: dict[Op, Lowering] = {}

    def get_or_load_func(self, entry: str, module: str) -> Function:
        """Return a kernel of one of ubridge's modules, which is loaded when first asked for.

        Raises `NotFoundError` for a module or an entry that does not exist.
        """
        loaded = load_module(module, device=self.device)
        if module not in self._attached:
            self.index_faults.attach(loaded)
            self._attached.add(module)
        return loaded.get_function(entry)

    def room(self, size: int, dtype: DType, stream: StreamLike | None = None) -> DeviceBuffer:
        """Return memory in the order of `stream`, with whatever it held."""
        if stream is None:
            return DeviceBuffer.uninitialized(size, dtype, device=self.device)
        return DeviceBuffer.uninitialized_async(size, dtype, stream)

    def lowering(self, op: Op) -> Lowering:
        """Return how this device computes an operation. `NotSupportedError` if it does not."""
        found = self._lowerings.get(op)
        if found is None:
            known = self.backend_kernels.lowerings
            general = known.get(op) or known.get(op.family)
            if general is None:
                raise NotSupportedError(
                    f"{op.name}: the {self.device.backend} backend has no such kernel",
                    backend=self.device.backend,
                )
            found = self._lowerings.setdefault(op, general.on(self))
        return found

    def has(self, op: Op) -> bool:
        """Return whether this device computes an operation, for some element types."""
        known = self.backend_kernels.lowerings
        return op in known or op.family in known

    def close(self) -> None:
        """Release what its lowerings hold besides memory. The device is still open."""
        self.index_faults.close()
        for lowering in self._lowerings.values():
            lowering.close()

    def kernel(self, op: Op, definition: KernelDef, dtype: DType, other: DType | None) -> Kernel:
        """Return the kernel for elements of `dtype`; `op` has the root of its name.

        `other` is the ids' type, or the one a cast is to. Raises `ArgumentTypeError` when there is
        none for these element types.
        """
        key = (definition, op, dtype.code, "" if other is None else other.code)
        found = self._kernels.get(key)
        if found is None:
            found = self._kernels[key] = self._make_kernel(op, definition, dtype, other)
        return found

    def _make_kernel(
        self, op: Op, definition: KernelDef, dtype: DType, other: DType | None
    ) -> Kernel:
        entry = definition.entry.format(root=op.root, dtype=dtype.name, other=other)
        try:
            function = self.get_or_load_func(entry, definition.module)
        except NotFoundError as error:
            raise self._no_kernel(op, definition, entry, dtype, other) from error
        configure = definition.geometry(self.device.limits)
        return Kernel(definition.module, entry, function, configure)

    def _no_kernel(
        self, op: Op, definition: KernelDef, entry: str, dtype: DType, other: DType | None
    ) -> ArgumentTypeError:
        kernels = load_module(definition.module, device=self.device).kernels
        known = [
            one.name
            for one in ALL_DTYPES
            if definition.entry.format(root=op.root, dtype=one.name, other=other) in kernels
        ]
        besides = "" if other is None else f" and {other}"
        instead = f"; there are kernels for {' '.join(known)}{besides}" if known else ""
        return ArgumentTypeError(
            f"{op.name}: not supported for the dtype {dtype}{besides} on "
            f"{self.device.backend} (no kernel {entry}){instead}",
            backend=self.device.backend,
        )

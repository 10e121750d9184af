"""The kernels of one device, found once, with their layouts and constants."""

from __future__ import annotations

from collections.abc import Callable

from ubridge.core.kernel_def import Kernel, KernelDef
from ubridge.core.lowering import Launches, Lowering
from ubridge.core.operation import Op
from ubridge.core.question import Question
from ubridge.device.content_cache import ConstantCache
from ubridge.device.images import load_module
from ubridge.device.index_faults import IndexFaults
from ubridge.device.registry import kernels_of
from ubridge.device.slice_ptr import LayoutCache
from uhal import Device, DeviceBuffer, DType, Function, Module
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
        self._modules: dict[str, Module] = {}
        self._kernels: dict[tuple[KernelDef, str], Kernel] = {}
        self._lowerings: dict[Op, Lowering] = {}

    def get_or_load_func(self, entry: str, module: str) -> Function:
        """Return a kernel of one of ubridge's modules.

        The module is loaded on first use.

        Raises `NotFoundError` for a module or an entry that does not exist.
        """
        loaded = self._modules.get(module)
        if loaded is None or loaded.closed:
            loaded = self._modules[module] = load_module(module, device=self.device)
            self.index_faults.attach(loaded)
        return loaded.get_function(entry)

    def room(self, size: int, dtype: DType, stream: StreamLike | None = None) -> DeviceBuffer:
        """Return uninitialised memory in the order of `stream`."""
        if stream is None:
            return DeviceBuffer.uninitialized(size, dtype, device=self.device)
        return DeviceBuffer.uninitialized_async(size, dtype, stream)

    def lowering(self, op: Op) -> Lowering:
        """Return this device's lowering of an operation. `NotSupportedError` without one."""
        found = self._lowerings.get(op)
        if found is None:
            general = self._general(op)
            if general is None:
                raise NotSupportedError(
                    f"{op.name}: the {self.device.backend} backend has no such kernel",
                    backend=self.device.backend,
                )
            found = self._lowerings.setdefault(op, general.on(self))
        return found

    def has(self, op: Op) -> bool:
        """Return whether this device has an operation, for some element types."""
        return self._general(op) is not None

    def _general(self, op: Op) -> Lowering | None:
        """The backend's lowering of an operation, the same for all of its devices."""
        known = self.backend_kernels.lowerings
        if op.composed is not None and op not in known:
            return Launches(op.composed)
        return known.get(op) or known.get(op.family)

    def close(self) -> None:
        """Release the lowerings' objects other than memory. The device is still open."""
        self.index_faults.close()
        for lowering in self._lowerings.values():
            lowering.close()

    def kernel(
        self, question: Question, definition: KernelDef, dtype: DType, other: DType | None
    ) -> Kernel:
        """Return the kernel for elements of `dtype`.

        The question gives the other parts of the kernel's name. `other` is the ids' type, or a
        cast's target. Raises `ArgumentTypeError` when there is no kernel for these element types.
        """

        def entry_of(element: DType) -> str:
            names = dict(question.attributes)
            return definition.entry.format(
                root=question.op.root, dtype=element.name, other=other, **names
            )

        key = (definition, entry_of(dtype))
        found = self._kernels.get(key)
        if found is None:
            entry = key[1]
            try:
                self.get_or_load_func(entry, definition.module)
            except NotFoundError as error:
                raise self._no_kernel(
                    question.op.name, definition, entry_of, dtype, other
                ) from error
            found = Kernel(definition.module, entry, definition.geometry(self.device.limits))
            self._kernels[key] = found
        return found

    def _no_kernel(
        self,
        name: str,
        definition: KernelDef,
        entry_of: Callable[[DType], str],
        dtype: DType,
        other: DType | None,
    ) -> ArgumentTypeError:
        kernels = load_module(definition.module, device=self.device).kernels
        known = [one.name for one in ALL_DTYPES if entry_of(one) in kernels]
        given = f"dtype {dtype} is" if other is None else f"dtypes {dtype} and {other} are"
        instead = next((one for one in ("f32", *known) if one in known), None)
        advice = f' Cast first, for example x.astype("{instead}").' if instead else ""
        return ArgumentTypeError(
            f"{name}: {given} not supported on {self.device.backend}.{advice}",
            backend=self.device.backend,
        )

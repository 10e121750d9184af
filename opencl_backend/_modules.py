"""The verbs about modules and functions.

Loading a module reads it. A kernel is cut out (`uhal.images.spirv_slices`), and built on first
use.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from opencl_backend import _capabilities, _image, _source
from opencl_backend._devices import ClDevice
from opencl_backend._programs import Programs
from opencl_backend._runtime import runtime_header
from opencl_backend._source import SourceKernel
from opencl_backend.earlier import in_version
from opencl_backend.halves import CAPABILITY_FLOAT16, without_halves
from opencl_backend.loads import done_once
from uhal.abi import Library
from uhal.contract import MESSAGES, Backend, FunctionAttributes, LoadedModule
from uhal.errors import NotFoundError, NotSupportedError
from uhal.images.spirv import SpirvModule
from uhal.images.spirv_slices import SHARED, Cutter, Slice
from uhal.images.spirv_words import Entry
from uhal.signature import Signature


@dataclass(frozen=True)
class OpenDevice:
    """A device that is open."""

    device: ClDevice
    context: int
    """OpenCL's."""
    token: int
    """libuhal_opencl's."""
    programs: Programs


@dataclass
class SourceModule:
    """A loaded module of OpenCL C."""

    opened: OpenDevice
    what: str
    program: int
    kernels: Mapping[str, SourceKernel]
    lock: threading.RLock = field(default_factory=threading.RLock)
    functions: dict[str, int] = field(default_factory=dict)


@dataclass
class Module:
    """A loaded module of SPIR-V."""

    opened: OpenDevice
    what: str
    spirv: SpirvModule
    version: tuple[int, int]
    """SPIR-V version of the kernels that the driver gets."""
    cutter: Cutter
    lock: threading.RLock = field(default_factory=threading.RLock)
    functions: dict[str, int] = field(default_factory=dict)
    variables: dict[int, int] = field(default_factory=dict)
    """Address of each used variable, by the variable's identifier in the module."""

    @property
    def kernels(self) -> Mapping[str, Entry]:
        """The kernels by name."""
        return self.spirv.entries


class ModuleVerbs(Backend):
    """The part of the OpenCL backend that deals with code. Any thread may call any method."""

    _runtime: Library
    _attributes: dict[int, FunctionAttributes]

    @abstractmethod
    def opened(self, ordinal: int) -> OpenDevice:
        """Return the device of an ordinal, which is open."""

    def _start_modules(self) -> None:
        self._modules: dict[int, Module | SourceModule] = {}
        self._attributes = {}
        self._handles = itertools.count(1)

    def module_load(self, ordinal: int, image: bytes, *, path: Path | None = None) -> LoadedModule:
        """Read a module, and check that the device supports its format."""
        opened = self.opened(ordinal)
        what = "the image" if path is None else path.name
        if _source.is_source(image):
            return self._load_source(opened, image, what)
        read = _image.read(image, opened.device, what)
        spirv = read.module
        cutter = Cutter(spirv)
        handle = self._remember(Module(opened, what, spirv, read.version, cutter))
        has_messages = MESSAGES.decode() in cutter.variables.values()
        return LoadedModule(handle, read.chosen, spirv.signatures, has_messages)

    def _load_source(self, opened: OpenDevice, image: bytes, what: str) -> LoadedModule:
        """Have the driver compile a text, and ask it for the kernels."""
        text, options = _source.unwrap(image, what)
        program = opened.programs.build_source(text, options, what)
        try:
            kernels = opened.programs.describe(program)
        except BaseException:
            opened.programs.release(program)
            raise
        handle = self._remember(SourceModule(opened, what, program, kernels))
        signatures = {name: kernel.signature for name, kernel in kernels.items()}
        return LoadedModule(handle, _source.chosen(opened.device.name), signatures)

    def _remember(self, module: Module | SourceModule) -> int:
        handle = next(self._handles)
        self._modules[handle] = module
        return handle

    def module_global(self, module: int, name: str) -> tuple[int, int]:
        """Return address and bytes of a variable of the module."""
        loaded = self._modules[module]
        if isinstance(loaded, SourceModule):
            raise NotFoundError(
                f"the variable {name!r} has no address: OpenCL tells none of a module of OpenCL C",
                backend=self.name,
            )
        variable = loaded.cutter.variable_named(name)
        if variable is None:
            raise NotFoundError(f"the module has no variable {name!r}", backend=self.name)
        if loaded.cutter.whole:
            raise NotFoundError(
                f"the variable {name!r} has no address: OpenCL tells none, and in this module it "
                "cannot be made an argument, for a variable begins with a value or is used in a "
                "function that was not inlined",
                backend=self.name,
            )
        with loaded.lock:
            return self._variable(loaded, variable), loaded.cutter.size_of(variable)

    def function_attributes(self, function: int, name: str) -> FunctionAttributes:
        """Return the driver's and the module's facts about a kernel."""
        return self._attributes[function]

    def program_of(self, function: int) -> int:
        """Return OpenCL's program of a native kernel."""
        found = ctypes.c_void_p()
        self._runtime.uhalClKernelGetProgram(found, function)
        return found.value or 0

    # -- slots -------------------------------------------------------------------------------------

    def _get_function(self, handle: int, name_at: int) -> int:
        """The slot `get_function`: builds the kernel on first use."""
        name = ctypes.string_at(name_at).decode("utf-8", "replace")
        module = self._modules[handle]
        if name not in module.kernels:
            raise NotFoundError(f"the module has no kernel {name!r}", backend=self.name)
        with module.lock:
            found = module.functions.get(name)
            if found is None:
                if isinstance(module, SourceModule):
                    found = self._make_of_source(module, name)
                else:
                    found = self._make(module, name)
                module.functions[name] = found
            return found

    def _module_unload(self, handle: int) -> None:
        """The slot `module_unload`. Pending launches still run."""
        module = self._modules.pop(handle)
        for function in module.functions.values():
            self._attributes.pop(function, None)
            self._runtime.uhalClKernelDestroy(function)
        if isinstance(module, SourceModule):
            module.opened.programs.release(module.program)
            return
        with self._current(module.opened.token):
            for address in module.variables.values():
                self._runtime.uhalClMemFree(address)

    # -- making a kernel ---------------------------------------------------------------------------

    def _make_of_source(self, module: SourceModule, name: str) -> int:
        kernel = module.kernels[name]
        native = _arguments(kernel.local, kernel.signature, f"{module.what}, kernel {name!r}")
        opened = module.opened
        program = opened.programs.retain(module.program)
        # Only the kernel's source shows which memory the kernel accesses.
        function = self._kernel(opened, program, name, native, indirect=True)
        self._attributes[function] = self._facts(function, None)
        return function

    def _make(self, module: Module, name: str) -> int:
        entry = module.kernels[name]
        device = module.opened.device
        what = f"{module.what}, kernel {entry.name!r}"
        # This check comes before the driver's check, because its message is clearer.
        native = _native_arguments(module.spirv, entry, what)
        cut = module.cutter.cut(entry) if not module.cutter.whole else _uncut(module.spirv)
        image = _fitted(cut, device, what)
        for hidden in cut.hidden:
            if hidden == SHARED:
                native.append(_argument("SHARED"))
            else:
                native.append(_argument("VARIABLE", address=self._variable(module, hidden)))
        _require_one_size(native, what)
        image = in_version(image, module.version, what)
        if device.is_pocl:
            image = done_once(image, what)
        program = module.opened.programs.build(image, what)
        function = self._kernel(module.opened, program, entry.name, native, cut.indirect)
        self._attributes[function] = self._facts(function, module.spirv.largest_block(entry))
        return function

    def _kernel(
        self, opened: OpenDevice, program: int, name: str, native: list[Any], indirect: bool
    ) -> int:
        arguments = (runtime_header().ctype("uhalClArgument") * len(native))(*native)
        info = runtime_header().ctype("uhalClKernelInfo")()
        info.context = opened.token
        info.program = program
        info.name = name.encode()
        info.arguments = ctypes.cast(arguments, type(info.arguments))
        info.argument_count = len(native)
        info.indirect = indirect
        function = ctypes.c_void_p()
        self._runtime.uhalClKernelCreate(function, info)
        return function.value or 0

    def _facts(self, function: int, largest: int | None) -> FunctionAttributes:
        facts = runtime_header().ctype("uhalClKernelFacts")()
        self._runtime.uhalClKernelGetFacts(facts, function)
        most = int(facts.block_threads)
        return FunctionAttributes(
            max_threads_per_block=most if largest is None else min(most, largest),
            static_shared_bytes=int(facts.shared_bytes),
            local_bytes=int(facts.private_bytes),
        )

    def _variable(self, module: Module, variable: int) -> int:
        """Return a variable's address: zeroed memory of the module. The module's lock is held."""
        found = module.variables.get(variable)
        if found is not None:
            return found
        address = ctypes.c_uint64()
        stream = ctypes.c_void_p()
        size = module.cutter.size_of(variable)
        with self._current(module.opened.token):
            self._runtime.uhalClMemAlloc(address, size)
            self._runtime.uhalClStreamCreate(stream, 0, 0)
            try:
                self._runtime.uhalClMemsetD8Async(address.value, 0, size, stream)
                self._runtime.uhalClStreamSynchronize(stream)
            finally:
                self._runtime.uhalClStreamDestroy(stream)
        module.variables[variable] = address.value
        return address.value

    @contextmanager
    def _current(self, token: int) -> Iterator[None]:
        before = ctypes.c_void_p()
        self._runtime.uhalClCtxGetCurrent(before)
        self._runtime.uhalClCtxSetCurrent(token)
        try:
            yield
        finally:
            self._runtime.uhalClCtxSetCurrent(before)


def _uncut(spirv: SpirvModule) -> Slice:
    return Slice(spirv.words.tobytes(), tuple(spirv.capabilities), (), True)


def _fitted(cut: Slice, device: ClDevice, what: str) -> bytes:
    """A kernel's module in a form for the device. `NotSupportedError` if impossible."""
    lacking = _capabilities.missing(cut.capabilities, device)
    if CAPABILITY_FLOAT16 in lacking:
        rewritten = without_halves(SpirvModule(cut.image, what))
        if rewritten is not None:
            del lacking[CAPABILITY_FLOAT16]
            cut = replace(cut, image=rewritten)
    if lacking:
        raise NotSupportedError(
            f"{what} needs what {device.name} has not: {', '.join(lacking.values())}",
            backend="opencl",
        )
    return cut.image


def _native_arguments(spirv: SpirvModule, entry: Entry, what: str) -> list[Any]:
    """The kernel's arguments in the module's order."""
    types = spirv.parameter_types(spirv.function_of(entry))
    return _arguments([spirv.is_local(type_) for type_ in types], spirv.signature(entry), what)


def _arguments(local: Sequence[bool], signature: Signature, what: str) -> list[Any]:
    """The caller's arguments, mixed with pointers into a block's shared memory."""
    given = iter(signature)
    native: list[Any] = []
    for is_local in local:
        if is_local:
            native.append(_argument("SHARED"))
            continue
        parameter = next(given)
        if parameter.size is None:
            raise NotSupportedError(
                f"{what}: parameter {parameter.index} cannot be given here: an "
                "image, a sampler, a pipe, a queue, or a structure of unknown size",
                backend="opencl",
            )
        is_pointer = parameter.kind == "pointer"
        native.append(_argument("POINTER" if is_pointer else "VALUE", size=parameter.size))
    _require_one_size(native, what)
    return native


def _require_one_size(native: list[Any], what: str) -> None:
    if sum(one.kind == _kind("SHARED") for one in native) > 1:
        raise NotSupportedError(
            f"{what} takes several pointers to the memory of a block; a launch has one size of it",
            backend="opencl",
        )


def _kind(name: str) -> int:
    return runtime_header().constants[f"UHAL_CL_ARGUMENT_{name}"]


def _argument(kind: str, size: int = 8, address: int = 0) -> Any:
    made = runtime_header().ctype("uhalClArgument")()
    made.kind, made.size, made.address = _kind(kind), size, address
    return made

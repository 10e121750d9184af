"""The verbs about modules and functions.

Loading a module only reads the module. A kernel is cut out, translated to WGSL and made on first
use; translations are cached across processes.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import threading
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from uhal.abi import Library
from uhal.contract import (
    MESSAGES,
    Backend,
    Chosen,
    FunctionAttributes,
    ImageCandidate,
    LoadedModule,
)
from uhal.errors import NotFoundError, NotSupportedError
from uhal.images.program_cache import ProgramCache, key_of
from uhal.images.spirv import SpirvModule
from uhal.images.spirv_image import kernels_of
from uhal.images.spirv_slices import SHARED, Cutter, Slice
from uhal.images.spirv_words import Entry
from webgpu_backend._adapters import Adapter
from webgpu_backend._runtime import runtime_header
from webgpu_backend._written import FAULT, Written, written_beside
from webgpu_backend.translator import VERSION, Argument, Translation, translate

_POINTER = ctypes.sizeof(ctypes.c_uint64)


@dataclass(frozen=True)
class OpenDevice:
    """A device that is open."""

    adapter: Adapter
    token: int
    """libuhal_webgpu's."""
    cache: ProgramCache


@dataclass
class Module:
    """A loaded module."""

    opened: OpenDevice
    what: str
    spirv: SpirvModule
    cutter: Cutter
    written: Mapping[str, Written]
    """Kernels that are written in WGSL."""
    lock: threading.RLock = field(default_factory=threading.RLock)
    functions: dict[str, int] = field(default_factory=dict)
    variables: dict[int, int] = field(default_factory=dict)
    """Address of each variable that was used, by its identifier in the module."""
    pointers: dict[int, ctypes.c_uint64] = field(default_factory=dict)
    """The last pointer that the host wrote into a variable: kernels bind the pointer's memory."""
    tables: list[int] = field(default_factory=list)
    """Addresses of the constants of its kernels."""


class ModuleVerbs(Backend):
    """The module and kernel functions of the WebGPU backend. Any thread may call any method."""

    _runtime: Library
    _attributes: dict[int, FunctionAttributes]

    @abstractmethod
    def opened(self, ordinal: int) -> OpenDevice:
        """Return the device of an ordinal, which is open."""

    def _start_modules(self) -> None:
        self._modules: dict[int, Module] = {}
        self._attributes = {}
        self._handles = itertools.count(1)

    def module_load(self, ordinal: int, image: bytes, *, path: Path | None = None) -> LoadedModule:
        """Read a module of SPIR-V."""
        what = "the image" if path is None else path.name
        spirv, description = kernels_of(image, what)
        cutter = Cutter(spirv)
        handle = next(self._handles)
        written = written_beside(path)
        self._modules[handle] = Module(self.opened(ordinal), what, spirv, cutter, written)
        reason = "each kernel is translated to WGSL when it is asked for"
        chosen = Chosen(description, reason, (ImageCandidate(description, True, reason),))
        has_messages = MESSAGES.decode() in cutter.variables.values()
        return LoadedModule(handle, chosen, spirv.signatures, has_messages)

    def module_global(self, module: int, name: str) -> tuple[int, int]:
        """Return address and bytes of a variable of the module."""
        loaded = self._modules[module]
        variable = self._variable_named(loaded, name)
        with loaded.lock:
            return self._variable(loaded, variable), loaded.cutter.size_of(variable)

    def write_global(self, module: int, name: str, value: bytes) -> None:
        """Note a pointer's target, to bind it to kernels that read the variable.

        The copy to the variable is left to `uhal`.
        """
        loaded = self._modules[module]
        variable = self._variable_named(loaded, name)
        if len(value) == _POINTER:
            with loaded.lock:
                self._pointer(loaded, variable).value = int.from_bytes(value, "little")
        raise NotImplementedError

    def _variable_named(self, module: Module, name: str) -> int:
        variable = module.cutter.variable_named(name)
        if variable is None:
            raise NotFoundError(f"the module has no variable {name!r}", backend=self.name)
        if module.cutter.whole:
            raise NotFoundError(
                f"the variable {name!r} has no address: a variable of this module begins with a "
                "value, or is used in a function that was not inlined",
                backend=self.name,
            )
        return variable

    def function_attributes(self, function: int, name: str) -> FunctionAttributes:
        """Return the module's and the device's facts about a kernel."""
        return self._attributes[function]

    # -- slots -------------------------------------------------------------------------------------

    def _get_function(self, handle: int, name_at: int) -> int:
        """The slot `get_function`: makes the kernel on first use."""
        name = ctypes.string_at(name_at).decode("utf-8", "replace")
        module = self._modules[handle]
        entry = module.spirv.entries.get(name)
        if entry is None:
            raise NotFoundError(f"the module has no kernel {name!r}", backend=self.name)
        with module.lock:
            found = module.functions.get(name)
            if found is None:
                found = module.functions[name] = self._make(module, entry)
            return found

    def _module_unload(self, handle: int) -> None:
        """The slot `module_unload`. Pending launches still run."""
        module = self._modules.pop(handle)
        for function in module.functions.values():
            self._attributes.pop(function, None)
            self._runtime.uhalWgKernelDestroy(function)
        for address in (*module.variables.values(), *module.tables):
            self._runtime.uhalWgMemFree(address)

    # -- making a kernel ---------------------------------------------------------------------------

    def _make(self, module: Module, entry: Entry) -> int:
        what = f"{module.what}, kernel {entry.name!r}"
        written = module.written.get(entry.name)
        if written is not None:
            return self._make_written(module, entry, written)
        if module.cutter.whole:
            raise NotSupportedError(
                f"{what}: a variable of its module begins with a value, or is used in a function "
                "that was not inlined. Write it from the host, or inline the function.",
                backend=self.name,
            )
        cut = module.cutter.cut(entry)
        reported = self._translated(module, entry, cut, what)
        hidden = cut.hidden
        own = len(module.spirv.function_of(entry).parameters)
        arguments = [
            self._argument(module, one, own, hidden, reported)
            for one in sorted(reported.arguments, key=lambda one: (one.kind == "table", one.index))
            if one.kind != "shared"
        ]
        function = self._kernel(module.opened, reported, arguments)
        self._attributes[function] = self._facts(module, entry, reported)
        return function

    def _make_written(self, module: Module, entry: Entry, written: Written) -> int:
        facts = module.opened.adapter.facts
        own = module.spirv.signatures[entry.name]
        found = written.translation(own, int(facts.max_immediate_bytes))
        _require_room(found, facts, f"{module.what}, kernel {entry.name!r}")
        hidden = (self._variable_named(module, FAULT),) if written.reports else ()
        arguments = [
            self._argument(module, one, len(own), hidden, found) for one in found.arguments
        ]
        function = self._kernel(module.opened, found, arguments)
        self._attributes[function] = self._facts(module, entry, found)
        return function

    def _translated(self, module: Module, entry: Entry, cut: Slice, what: str) -> Translation:
        """The kernel in WGSL, from the cache if present."""
        facts = module.opened.adapter.facts
        cache = module.opened.cache
        room = int(facts.max_immediate_bytes)
        key = key_of(VERSION, str(room), str(len(cut.hidden)), cut.image)
        kept = cache.find(key)
        if kept is not None:
            return _read(kept)
        spirv = SpirvModule(cut.image, what)
        try:
            found = translate(spirv, spirv.entries[entry.name], room, len(cut.hidden))
        except NotSupportedError as refused:
            raise NotSupportedError(f"{what} has {refused}", backend=self.name) from None
        _require_room(found, facts, what)
        cache.keep(key, _written(found))
        return found

    def _argument(
        self,
        module: Module,
        one: Argument,
        own: int,
        hidden: tuple[int, ...],
        reported: Translation,
    ) -> Any:
        made = runtime_header().ctype("uhalWgArgument")()
        made.size, made.word, made.tag, made.binding = one.size, one.word, one.tag, one.binding
        kind = one.kind
        if kind == "table":
            made.address = self._table(module, reported.tables[one.index])
            kind = "fixed"
        elif kind == "indirect":
            made.address = ctypes.addressof(self._pointer(module, hidden[one.index - own]))
        elif one.index >= own:
            made.address = self._variable(module, hidden[one.index - own])
            kind = "fixed"
        made.kind = runtime_header().constants[f"UHAL_WG_ARGUMENT_{kind.upper()}"]
        return made

    def _kernel(self, opened: OpenDevice, reported: Translation, given: list[Any]) -> int:
        arguments = (runtime_header().ctype("uhalWgArgument") * max(len(given), 1))(*given)
        text = reported.text.encode()
        info = runtime_header().ctype("uhalWgKernelInfo")()
        info.context = opened.token
        info.text, info.text_bytes = text, len(text)
        info.arguments = ctypes.cast(arguments, type(info.arguments))
        info.argument_count = len(given)
        info.binding_count = reported.bindings
        info.words = reported.words
        info.has_uniform = reported.has_uniform
        info.has_shared = reported.has_shared
        function = ctypes.c_void_p()
        self._runtime.uhalWgKernelCreate(function, info)
        return function.value or 0

    def _facts(self, module: Module, entry: Entry, reported: Translation) -> FunctionAttributes:
        facts = module.opened.adapter.facts
        largest = module.spirv.largest_block(entry)
        most = int(facts.max_threads)
        return FunctionAttributes(
            max_threads_per_block=most if largest is None else min(most, largest),
            static_shared_bytes=reported.shared_bytes,
            max_dynamic_shared_bytes=max(int(facts.max_shared_bytes) - reported.shared_bytes, 0),
        )

    # -- memory of a module ------------------------------------------------------------------------

    def _pointer(self, module: Module, variable: int) -> ctypes.c_uint64:
        return module.pointers.setdefault(variable, ctypes.c_uint64())

    def _variable(self, module: Module, variable: int) -> int:
        """Return a variable's address in zeroed memory. The module's lock is held."""
        if variable == SHARED:
            return 0
        found = module.variables.get(variable)
        if found is None:
            found = module.variables[variable] = self._zeros(
                module.opened, module.cutter.size_of(variable)
            )
        return found

    def _table(self, module: Module, data: bytes) -> int:
        address = self._zeros(module.opened, len(data))
        module.tables.append(address)
        self._write(module.opened, address, data)
        return address

    def _zeros(self, opened: OpenDevice, size: int) -> int:
        address = ctypes.c_uint64()
        with self._current(opened.token):
            self._runtime.uhalWgMemAlloc(address, size)
        return address.value

    def _write(self, opened: OpenDevice, address: int, data: bytes) -> None:
        stream = ctypes.c_void_p()
        with self._current(opened.token):
            self._runtime.uhalWgStreamCreate(stream, 0, 0)
            try:
                self._runtime.uhalWgMemcpyHtoDAsync(address, data, len(data), stream)
                self._runtime.uhalWgStreamSynchronize(stream)
            finally:
                self._runtime.uhalWgStreamDestroy(stream)

    @contextmanager
    def _current(self, token: int) -> Iterator[None]:
        before = ctypes.c_void_p()
        self._runtime.uhalWgCtxGetCurrent(before)
        self._runtime.uhalWgCtxSetCurrent(token)
        try:
            yield
        finally:
            self._runtime.uhalWgCtxSetCurrent(before)


def _require_room(reported: Translation, facts: Any, what: str) -> None:
    """Refuse a kernel that needs more than the adapter has."""
    for expected, got, name in (
        (int(facts.max_storage_buffers), reported.bindings, "storage buffers"),
        (int(facts.max_shared_bytes), reported.shared_bytes, "bytes of shared memory"),
        (int(facts.max_uniform_bytes), 4 * reported.words, "bytes of parameters"),
    ):
        if got > expected:
            raise NotSupportedError(
                f"{what}: expected at most {expected} {name}, got {got}", backend="webgpu"
            )


def _written(reported: Translation) -> bytes:
    tables = [table.hex() for table in reported.tables]
    return json.dumps({**asdict(reported), "tables": tables}).encode()


def _read(kept: bytes) -> Translation:
    found = json.loads(kept)
    found["arguments"] = tuple(Argument(**one) for one in found["arguments"])
    found["tables"] = tuple(map(bytes.fromhex, found["tables"]))
    return Translation(**found)

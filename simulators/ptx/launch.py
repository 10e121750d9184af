"""Runs a kernel of a PTX text from Python, on host memory: for tests and a quick look."""

from __future__ import annotations

import ctypes
import functools
import json
import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .cache import kernel_library, runtime_library
from .layout import MAX_THREADS
from .parser import parse
from .program import ParameterSlot
from .unit import variable_offsets

if TYPE_CHECKING:
    from .sites import Check

OUTCOMES = (
    "ok",
    "illegal address",
    "trap",
    "deadlock",
    "divergent barrier",
    "bad mask",
    "timeout",
    "no memory",
    "misaligned address",
    "shared race",
    "uninitialized read",
    "assertion",
    "no function",
)


Argument = int | bytes | np.ndarray


class _Kernel(ctypes.Structure):
    _fields_ = [
        ("abi", ctypes.c_uint32),
        ("parameter_bytes", ctypes.c_uint32),
        ("static_shared_bytes", ctypes.c_uint32),
        ("check", ctypes.c_uint32),
    ]


_STATES = {"live": 0, "read-only": 1, "freed": 2}


class _Range(ctypes.Structure):
    _fields_ = [
        ("address", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
        ("state", ctypes.c_uint32),
        ("unused", ctypes.c_uint32),
        ("tag", ctypes.c_uint64),
    ]


class _Fault(ctypes.Structure):
    _fields_ = [
        ("kind", ctypes.c_uint32),
        ("access", ctypes.c_uint32),
        ("space", ctypes.c_uint32),
        ("bytes", ctypes.c_uint32),
        ("address", ctypes.c_uint64),
        ("line", ctypes.c_uint32),
        ("has_thread", ctypes.c_uint32),
        ("block", ctypes.c_uint32 * 3),
        ("thread", ctypes.c_uint32 * 3),
        ("other_line", ctypes.c_uint32),
        ("has_range", ctypes.c_uint32),
        ("other_thread", ctypes.c_uint32 * 3),
        ("unused", ctypes.c_uint32),
        ("range", _Range),
        ("distance", ctypes.c_int64),
    ]


class _Launch(ctypes.Structure):
    _fields_ = [
        ("grid", ctypes.c_uint32 * 3),
        ("threads", ctypes.c_uint32 * 3),
        ("dynamic_shared_bytes", ctypes.c_uint32),
        ("workers", ctypes.c_uint32),
        ("seed", ctypes.c_uint64),
        ("milliseconds", ctypes.c_uint64),
        ("cooperative", ctypes.c_uint32),
        ("unused", ctypes.c_uint32),
        ("parameters", ctypes.c_void_p),
        ("window_base", ctypes.c_uint64),
        ("window_span", ctypes.c_uint64),
        ("window_delta", ctypes.c_uint64),
        ("variables", ctypes.c_uint64),
        ("ranges", ctypes.c_void_p),
        ("range_count", ctypes.c_uint64),
        ("print", ctypes.c_void_p),
        ("trace", ctypes.c_void_p),
        ("trace_text", ctypes.c_void_p),
        ("trace_block", ctypes.c_uint32 * 3),
        ("trace_thread", ctypes.c_uint32 * 3),
        ("message", ctypes.c_char * 512),
        ("fault", _Fault),
        ("counting", ctypes.c_void_p),
    ]


_Tell = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64)


class _Counting(ctypes.Structure):
    _fields_ = [
        ("kernel", ctypes.c_void_p),
        ("counted", ctypes.c_void_p),
        ("every", ctypes.c_uint64),
        ("tell", _Tell),
        ("context", ctypes.c_void_p),
    ]


class LaunchError(Exception):
    """A fault of a kernel, as a device reports it. `outcome` is one of `OUTCOMES`."""

    def __init__(self, outcome: str, message: str, fault: _Fault) -> None:
        super().__init__(f"{outcome}: {message}")
        self.outcome = outcome
        self.message = message
        self.line = int(fault.line)
        """Line of the PTX text; 0 when it is unknown."""
        self.address = int(fault.address)
        """Address of the access; in shared memory, the offset there."""
        self.thread = tuple(fault.thread) if fault.has_thread else None
        self.block = tuple(fault.block)


@dataclass(frozen=True)
class Allocation:
    """Memory a kernel may access, or might have: `state` is a key of `_STATES`."""

    address: int
    bytes: int
    state: str = "live"


class Module:
    """A PTX text whose kernels can be launched. Its variables live as long as it does."""

    def __init__(self, text: str, check: Check = "on") -> None:
        self._text = text
        self._check: Check = check
        self._program = parse(text)
        self.kernels = tuple(self._program.entries)
        self._offsets, size = variable_offsets(self._program.variables)
        self._area = ctypes.create_string_buffer(size + 256)
        self._start = -(-ctypes.addressof(self._area) // 256) * 256
        self._fill()

    def _fill(self) -> None:
        for name, offset in self._offsets.items():
            variable = self._program.variables[name]
            data = bytearray(variable.data)
            for reference in variable.references:
                address = self.address(reference.symbol) + reference.addend
                data[reference.offset : reference.offset + 8] = address.to_bytes(8, "little")
            ctypes.memmove(self._start + offset, bytes(data), len(data))

    def address(self, name: str) -> int:
        """The address of a global or constant variable. Raises `KeyError`."""
        return self._start + self._offsets[name]

    def allocations(self) -> list[Allocation]:
        """The variables, as memory the module's kernels may access."""
        found = []
        for name in self._offsets:
            variable = self._program.variables[name]
            state = "read-only" if variable.space == "const" else "live"
            found.append(Allocation(self.address(name), variable.size, state))
        return found

    def kernel(self, name: str) -> Kernel:
        """A kernel, translated now. Raises `PtxError`."""
        library = ctypes.CDLL(str(kernel_library(self._text, name, self._check, self._program)))
        slots = self._program.functions[name].head.parameters
        return Kernel(self, library, slots)


class Kernel:
    """A kernel ready to run. Launches block until the grid has ended."""

    def __init__(
        self, module: Module, library: ctypes.CDLL, slots: Sequence[ParameterSlot]
    ) -> None:
        self._module = module
        self._library = library
        self._kernel = _Kernel.in_dll(library, "uptx_kernel")
        counts = module._check == "count"
        self._counted = ctypes.c_uint32.in_dll(library, "uptx_counted") if counts else None
        self.slots = tuple(slots)

    @property
    def static_shared_bytes(self) -> int:
        """Bytes of shared memory that the kernel declares."""
        return int(self._kernel.static_shared_bytes)

    def launch(self, *arguments: Any, **options: Any) -> None:
        """Run a grid now: `prepare` and `Prepared.run`."""
        self.prepare(*arguments, **options).run()

    def prepare(
        self,
        grid: Sequence[int],
        block: Sequence[int],
        arguments: Sequence[Argument],
        *,
        memory: Sequence[Allocation] = (),
        shared: int = 0,
        seed: int | None = None,
        workers: int = 0,
        milliseconds: int = 60_000,
        cooperative: bool = False,
    ) -> Prepared:
        """A launch over host memory; arguments are integers, the parameter's bytes or arrays.

        The kernel may access the arrays, the module's variables and `memory`.
        """
        if math.prod(block) > MAX_THREADS:
            raise ValueError(f"a block has at most {MAX_THREADS} threads, got {tuple(block)}")
        parameters = self._packed(arguments)
        arrays = [one for one in arguments if isinstance(one, np.ndarray)]
        known = {one.ctypes.data: Allocation(one.ctypes.data, one.nbytes) for one in arrays}
        ranges = _table([*known.values(), *memory, *self._module.allocations()])
        launch = _Launch(
            grid=tuple([*grid, 1, 1][:3]),
            threads=tuple([*block, 1, 1][:3]),
            dynamic_shared_bytes=shared,
            workers=workers,
            seed=secrets.randbits(63) if seed is None else seed,
            milliseconds=milliseconds,
            cooperative=cooperative,
            parameters=ctypes.addressof(parameters),
            variables=self._module._start,
            ranges=ctypes.addressof(ranges),
            range_count=len(ranges),
        )
        prepared = Prepared(launch, self._kernel, (self._module, parameters, ranges, arrays))
        if self._counted is not None:
            prepared.count(self._counted)
        return prepared

    def _packed(self, arguments: Sequence[Argument]) -> ctypes.Array[ctypes.c_char]:
        if len(arguments) != len(self.slots):
            raise ValueError(f"the kernel takes {len(self.slots)} arguments, got {len(arguments)}")
        end = max((slot.offset + slot.size for slot in self.slots), default=0)
        parameters = bytearray(end + 16)
        for slot, argument in zip(self.slots, arguments, strict=True):
            given = int(argument.ctypes.data) if isinstance(argument, np.ndarray) else argument
            if isinstance(given, int):
                mask = (1 << 8 * slot.size) - 1
                given = (given & mask).to_bytes(slot.size, "little")
            if len(given) != slot.size:
                raise ValueError(f"{slot.name} has {slot.size} bytes, got {len(given)}")
            parameters[slot.offset : slot.offset + slot.size] = given
        return (ctypes.c_char * len(parameters)).from_buffer(parameters)


class Prepared:
    """A launch that can be run again and again; it keeps its objects alive."""

    def __init__(self, launch: _Launch, kernel: _Kernel, needed: tuple[object, ...]) -> None:
        self._launch = launch
        self._needed = needed
        self._kernel = kernel
        self._arguments = (ctypes.byref(kernel), ctypes.byref(launch))
        self._uptx_run = _runtime().uptx_run
        self.counts: dict[str, Any] = {}
        """Memory accesses of the last run of a module with `count`, of all its blocks."""

    def count(self, counted: ctypes.c_uint32) -> None:
        """Count later runs; `counted` is the kernel's table."""

        def keep(_: int, members: int, size: int) -> None:
            self.counts = json.loads(b"{" + ctypes.string_at(members, size) + b"}")

        counting = _Counting(
            kernel=ctypes.addressof(self._kernel),
            counted=ctypes.addressof(counted),
            every=1,
            tell=_Tell(keep),
        )
        self._launch.counting = ctypes.addressof(counting)
        self._needed = (*self._needed, counting)

    def run(self) -> None:
        """Run the grid to its end. Raises `LaunchError` with the seed in its words."""
        outcome = self._uptx_run(*self._arguments)
        if outcome:
            launch = self._launch
            words = f"{launch.message.decode('utf-8', 'replace')} (seed {launch.seed})"
            raise LaunchError(OUTCOMES[outcome], words, launch.fault)


def _table(allocations: Sequence[Allocation]) -> ctypes.Array[_Range]:
    ordered = sorted((one for one in allocations if one.bytes), key=lambda one: one.address)
    return (_Range * len(ordered))(
        *(_Range(one.address, one.bytes, _STATES[one.state], 0, 0) for one in ordered)
    )


@functools.cache
def _runtime() -> ctypes.CDLL:
    library = ctypes.CDLL(str(runtime_library()))
    library.uptx_run.restype = ctypes.c_int
    library.uptx_run.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    return library

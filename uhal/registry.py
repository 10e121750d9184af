"""Finds, opens and remembers backends and devices. Only this file knows backends' names.

Our backends are in a table; others register their class under the entry-point group
`uhal.backends`. A backend is imported at its first use. Everything here may be called from any
thread.
"""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING

from uhal import _lane
from uhal._refusal import as_int, call_site, describe
from uhal.contract import Backend, BackendRecord, DeviceSummary
from uhal.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    DeviceError,
    InvalidHandleError,
    NoDeviceError,
)

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

OURS = {
    "cuda": "cuda_backend",
    "rocm": "rocm_backend",
    "tops": "tops_backend",
    "host": "host_backend",
    "opencl": "opencl_backend",
    "webgpu": "webgpu_backend",
}
"""Maps a backend's name to its package, whose `backend` is the class. A checkout may lack
metadata."""

GROUP = "uhal.backends"
"""The entry-point group of other distributions: name = "package:BackendClass"."""

OVERRIDE = "UHAL_BACKEND"
"""The environment variable that forces a backend."""


class _Opened:
    """Backends and devices opened by this process. A forked child starts with an empty record."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.generation = _lane.fork_generation()
        self.records: dict[str, tuple[str | None, BackendRecord]] = {}
        self.backends: dict[str, Backend] = {}
        self.contexts: dict[tuple[str, int], _lane.Context] = {}
        self.chosen: str | None = None
        self.left_in_parent: frozenset[str] = frozenset()
        """Backends opened before the fork that do not survive a fork."""


_opened = _Opened()
_called_before_close: list[Callable[[_lane.Context], None]] = []


def record(name: str) -> BackendRecord:
    """Say whether the backend works here, and why or why not. Creates nothing on a device."""
    known = _known_name(name, "backend")
    opened = _current()
    library = os.environ.get(f"UHAL_{known.upper()}_LIBRARY")
    with opened.lock:
        cached = opened.records.get(known)
        # A test or a notebook may set the variable for the library later.
        if cached is None or (cached[0] != library and known not in opened.backends):
            cached = opened.records[known] = (library, _probe(known))
        return cached[1]


def names() -> tuple[str, ...]:
    """Return the names of all backends, in the order of the search for a device.

    The installed distributions are read once, at the first call.
    """
    return (*OURS, *_others())


NAMES_OF_DEVICES = 'give one or its name, as "cuda" or "cuda:1"'
"""Advice for a caller whose argument is no device."""


def named(device: str, backend: str | None = None) -> tuple[str, int]:
    """Return the backend and ordinal of a device's name, such as `"cuda"` or `"cuda:1"`.

    A backend's name alone means its device 0. Raises `ArgumentValueError` for an invalid name, or
    one that contradicts the given backend.
    """
    name, colon, digits = device.partition(":")
    if name not in names() or (colon and not (digits.isascii() and digits.isdigit())):
        raise ArgumentValueError(
            f"device: expected a uhal.Device, got {describe(device)}; {NAMES_OF_DEVICES}, of a "
            f"backend that is one of {', '.join(names())}"
        )
    if backend not in (None, name):
        raise ArgumentValueError(f"device: expected one of backend {backend!r}, got {device!r}")
    return name, int(digits or 0)


def look_again() -> None:
    """Read the installed distributions again, after a backend was installed."""
    _others.cache_clear()


def records() -> tuple[BackendRecord, ...]:
    """Return the record of every backend, in the order of `names()`."""
    return tuple(record(name) for name in names())


def choose(backend: str | None = None) -> str:
    """Return the backend to use, and remember it for later calls without a name.

    The order: `backend`, the earlier choice, `UHAL_BACKEND`, then the backend of the device that
    ranks first. Accelerators rank before the host, the host before other backends' processors;
    equal ranks keep the order of `names()`. A named backend never falls back. Raises
    `NoDeviceError` with the records examined.
    """
    opened = _current()
    with opened.lock:
        if backend is not None:
            opened.chosen = _forced(_known_name(backend, "backend"), f"backend={backend!r}")
        elif opened.chosen is None:
            opened.chosen = _first_choice(opened)
        return opened.chosen


def chosen() -> str | None:
    """Return the backend that `choose` remembers, `None` before the first choice."""
    return _current().chosen


def backend(name: str) -> Backend:
    """Open the backend, once per process. Raises `NoDeviceError` if it does not work here."""
    known = _known_name(name, "backend")
    opened = _current()
    with opened.lock:
        if known in opened.left_in_parent:
            from uhal.faults import fork_sentence

            raise InvalidHandleError(fork_sentence(), backend=known)
        found = opened.backends.get(known)
        if found is None:
            _forced(known, f"backend {known!r}")
            found = opened.backends[known] = _backend_class(known).open()
        return found


def opened_backends() -> dict[str, Backend]:
    """Return the backends opened so far in this process."""
    opened = _current()
    with opened.lock:
        return dict(opened.backends)


def opened_contexts() -> tuple[_lane.Context, ...]:
    """Return the contexts open now, oldest first."""
    opened = _current()
    with opened.lock:
        return tuple(context for context in opened.contexts.values() if not context.closed)


def context(name: str, ordinal: int) -> _lane.Context:
    """Return the context of a device, opening it the first time and after `close_context`.

    Raises `NoDeviceError` when there is no such device.
    """
    opened = _current()
    with opened.lock:
        owner = backend(name)
        index = _checked_ordinal(owner, ordinal)
        found = opened.contexts.get((owner.name, index))
        if found is None or found.closed:
            found = _open_context(owner, index)
            opened.contexts[owner.name, index] = found
        return found


def call_before_close(function: Callable[[_lane.Context], None]) -> None:
    """Call `function` with every context before it is closed.

    A cache uses the call to drop its objects of the device.
    """
    _called_before_close.append(function)


def close_context(context: _lane.Context) -> None:
    """Close the context and forget it; `context` opens the device again."""
    for function in _called_before_close:
        function(context)
    opened = _current()
    with opened.lock:
        key = (context.backend_name, context.ordinal)
        if opened.contexts.get(key) is context:
            del opened.contexts[key]
    context.close()


def _current() -> _Opened:
    """Return the state of this process; a forked child makes a new state."""
    global _opened
    generation = _lane.fork_generation()
    if _opened.generation != generation:
        before = _opened
        _opened = _Opened()
        lost = {name for name, found in before.backends.items() if not found.survives_fork}
        _opened.left_in_parent = before.left_in_parent | lost
    return _opened


def _open_context(owner: Backend, ordinal: int) -> _lane.Context:
    if not _lane.initialization_site():
        _lane.set_initialization_site(call_site())
    limits = owner.device_limits(ordinal)
    context = _lane.Context(owner, ordinal, owner.device_context(ordinal), limits)
    reports = owner.device_reports(ordinal)
    if reports is not None:
        context.watch_reports(*reports)
    return context


def _first_choice(opened: _Opened) -> str:
    override = os.environ.get(OVERRIDE, "").strip()
    if override:
        return _forced(_known_name(override, OVERRIDE), f"{OVERRIDE}={override}")
    looked_at: list[BackendRecord] = []
    best: tuple[int, str] | None = None
    for name in names():
        if name in opened.left_in_parent:
            # This raises an error: a fallback to a lesser backend would hide that the program
            # forked too late.
            backend(name)
        found = record(name)
        looked_at.append(found)
        if _works(found):
            rank = min(_rank(found, device) for device in found.devices)
            if best is None or rank < best[0]:
                best = rank, name
            if rank == _ACCELERATOR:
                break
    if best is None:
        raise NoDeviceError("no backend has a device:", records=looked_at)
    return best[1]


_ACCELERATOR, _HOST, _OTHER_PROCESSOR = range(3)


def _rank(found: BackendRecord, device: DeviceSummary) -> int:
    if device.kind == "accelerator":
        return _ACCELERATOR
    return _HOST if found.name == "host" else _OTHER_PROCESSOR


def _forced(name: str, asked_by: str) -> str:
    found = record(name)
    if not _works(found):
        raise NoDeviceError(f"{asked_by} was asked for and has no device:", records=[found])
    return name


def _works(found: BackendRecord) -> bool:
    return found.verdict == "ok" and bool(found.devices)


def _probe(name: str) -> BackendRecord:
    try:
        return _backend_class(name).probe()
    except ModuleNotFoundError as error:
        if error.name != OURS.get(name):
            return _refused(name, error)
        return BackendRecord(name, "absent", "not in this version of uhal")
    except (DeviceError, ImportError, OSError) as error:
        return _refused(name, error)


def _refused(name: str, error: Exception) -> BackendRecord:
    return BackendRecord(name, "refused", f"{type(error).__name__}: {error}")


def _backend_class(name: str) -> type[Backend]:
    entry_point = _others().get(name)
    if entry_point is not None:
        return _checked_class(name, entry_point.load(), entry_point.value)
    package = importlib.import_module(OURS[name])
    found: type[Backend] | None = getattr(package, "backend", None)
    if found is None:
        # A folder of that name on the import path can also lead here.
        raise ImportError(f"{next(iter(package.__path__))} is not uhal's {name} backend")
    return found


def _checked_class(name: str, found: object, value: str) -> type[Backend]:
    if not isinstance(found, type) or not issubclass(found, Backend) or found.name != name:
        raise ImportError(
            f"the entry point {name} = {value} of group {GROUP}: expected a subclass of "
            f"uhal.contract.Backend whose name is {name!r}, got {describe(found)}"
        )
    return found


@cache
def _others() -> Mapping[str, EntryPoint]:
    """Backends of other distributions by name, without the built-in backends."""
    # Importing it takes longer than importing uhal.
    from importlib.metadata import entry_points

    found = {one.name: one for one in entry_points(group=GROUP) if one.name not in OURS}
    return dict(sorted(found.items()))


def _known_name(name: object, asked_by: str) -> str:
    if isinstance(name, str) and (name in OURS or name in _others()):
        return name
    error = ArgumentValueError if isinstance(name, str) else ArgumentTypeError
    raise error(f"{asked_by}: expected one of {', '.join(names())}, got {describe(name)}")


def _checked_ordinal(owner: Backend, ordinal: object) -> int:
    index = as_int(ordinal)
    if index is None:
        advice = ""
        if isinstance(ordinal, str):
            advice = f". Write backend={ordinal.partition(':')[0]!r} for a backend"
        raise ArgumentTypeError(f"device ordinal: expected an int, got {describe(ordinal)}{advice}")
    count = owner.device_count()
    if not 0 <= index < count:
        there = "is 1 device, number 0" if count == 1 else f"are {count} devices, 0…{count - 1}"
        raise NoDeviceError(f"device {owner.name}:{index} does not exist: there {there}")
    return index

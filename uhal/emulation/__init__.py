"""Emulations of slots that a library lacks, shared by all backends.

    slots = complete({"launch": …, "alloc": …, …}, not_ready=…, out_of_memory=…, backend="mine")
    table = HotTable(slots, not_ready=…, out_of_memory=…)

| slots that the library lacks | made of |
|---|---|
| `current`, `bind` | a device a thread, kept here |
| `host_alloc`, `host_free` | ordinary memory |
| `memset_8`, `memset_16`, `memset_32` | copies of a pattern |
| all of `stream_*` and `event_*` | nothing: the library's calls are synchronous |
| all of `event_*` and `stream_wait_event` | waiting: recording an event waits for its stream |
| `stream_callback` | a thread that queries events, or waits for the stream |

Copies of rows (`Backend.copy_2d`) and graphs (`Backend.begin_capture`) have defaults in the
contract.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from pathlib import Path

from uhal._lane import slot_prototypes
from uhal.adapters import own_load

_STREAMS = ("stream_create", "stream_destroy", "stream_synchronize", "stream_query")
_EVENTS = (
    "event_create",
    "event_destroy",
    "event_record",
    "event_synchronize",
    "event_query",
    "event_elapsed",
    "stream_wait_event",
)
TOGETHER = (_STREAMS, _EVENTS, ("current", "bind"), ("host_alloc", "host_free"))
"""Groups of slots: a library has all or none of a group, because emulations need all."""


def complete(
    slots: Mapping[str, int], *, not_ready: int, out_of_memory: int, backend: str
) -> dict[str, int]:
    """Return `slots`, name to address, with an emulation for each missing required slot.

    `not_ready` is the library's answer while work is pending; `out_of_memory` is the answer of an
    emulation without memory. Raises `ValueError` for a slot without an emulation, and for half of a
    group of `TOGETHER`; `LibraryNotFoundError` when uhal was not built. The emulations belong to
    this library and last as long as the process.
    """
    prototypes = slot_prototypes()
    given = {name for name, address in slots.items() if address}
    missing = [
        name for name, (need, _) in prototypes.items() if need == "required" and name not in given
    ]
    if not missing:
        return dict(slots)
    for group in TOGETHER:
        if given.intersection(group) and not given.issuperset(group):
            lacking = ", ".join(name for name in group if name not in given)
            raise ValueError(f"{backend}: {', '.join(group)} go together; {lacking} is missing")
    if given.isdisjoint(_STREAMS) and not given.isdisjoint(_EVENTS):
        raise ValueError(f"{backend}: events of streams that are emulated have nothing to mark")
    library = own_load(Path(__file__).resolve().parent, "libuhal_emulation", backend)
    emulated = library.uhal_emulated_slot
    emulated.argtypes = (ctypes.c_char_p,)
    emulated.restype = ctypes.c_void_p
    found = {name: emulated(name.encode()) for name in missing}
    impossible = [name for name, address in found.items() if not address]
    if impossible:
        raise ValueError(f"{backend}: nothing stands in for {', '.join(impossible)}")
    completed = {**slots, **found}
    # Emulations call the library's own slots, and the binding, which may be emulated too.
    base: dict[str, int | None] = dict(slots)
    base.update({name: found[name] for name in ("current", "bind") if name in found})
    addresses = (ctypes.c_void_p * len(prototypes))(*(base.get(name) for name in prototypes))
    library.uhal_emulation_base.restype = None
    library.uhal_emulation_base(addresses, not_ready, out_of_memory)
    return completed

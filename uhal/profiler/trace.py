"""A profile in the Trace Event Format, which Perfetto, chrome://tracing and Speedscope read.

The format is described in "Trace Event Format" (Google, 2016): complete events `X`, counters `C`,
names `M`, and flows `s` → `f` from the call on the host to the work on the device. Times are
microseconds with three decimals. The host and each device are processes; the threads of a device
are its streams.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from uhal._version import __version__
from uhal.profiler.records import KINDS, Kernel, Records
from uhal.profiler.results import Results

Event = dict[str, Any]

_HOST = 1
_FIRST_DEVICE = 100
_CALLS = {
    "launch": "launch",
    "replay": "replay",
    "work": "call",
    "fill": "fill",
    "allocate": "allocate",
    "free": "free",
    "resolve": "profiler reads events",
    "h2d": "copy to the device",
    "d2h": "copy from the device",
    "d2d": "copy",
    "peer": "copy to another device",
}


def write(profile: Results, path: Path) -> Path:
    """Write the trace, compressed if the name ends in `.gz`."""
    with _opened(path) as file:
        file.write('{"displayTimeUnit":"ns","otherData":')
        json.dump({"producer": f"uhal {__version__}"}, file)
        file.write(',"traceEvents":[\n')
        separator = ""
        for event in events(profile):
            file.write(separator)
            json.dump(event, file, separators=(",", ":"), ensure_ascii=False)
            separator = ",\n"
        file.write("\n]}\n")
    return path


def _opened(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return gzip.open(path, "wt", encoding="utf-8")
    return path.open("w", encoding="utf-8")


def events(profile: Results) -> Iterator[Event]:
    """Yield every event of the trace."""
    records = profile.records
    yield from _names(records)
    for row in records.rows:
        kind = KINDS[int(row["kind"])]
        yield _on_host(records, row, kind)
        if row["device_end"]:
            yield _on_device(records, row, kind)
            yield from _arrow(row)
    for number, memory in enumerate(profile.memory):
        for moment, in_use in zip(memory.times.tolist(), memory.in_use.tolist(), strict=True):
            yield {
                "ph": "C",
                "name": "memory in use",
                "pid": _FIRST_DEVICE + number,
                "ts": moment / 1e3,
                "args": {"bytes": in_use},
            }


def _names(records: Records) -> Iterator[Event]:
    yield _named("process_name", _HOST, 0, "host")
    for thread in np.unique(records.rows["thread"]).tolist():
        name = records.threads.get(thread, f"thread {thread}")
        yield _named("thread_name", _HOST, _thread(thread), name)
    for number, device in enumerate(records.devices):
        pid = _FIRST_DEVICE + number
        yield _named("process_name", pid, 0, f"{device.name} · {device.product}")
        rows = records.rows[(records.rows["device"] == number) & (records.rows["stream"] != 0)]
        for stream in np.unique(rows["stream"]).tolist():
            yield _named("thread_name", pid, stream, f"stream {stream}")


def _named(what: str, pid: int, tid: int, name: str) -> Event:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}


def _thread(ident: int) -> int:
    """A thread id of the format, with 32 bits."""
    return int(ident ^ (ident >> 32)) & 0x7FFFFFFF


def _on_host(records: Records, row: Any, kind: str) -> Event:
    name = records.name_of(row)
    if kind in ("launch", "replay", "work"):
        name = f"{_CALLS[kind]} {name}"
    elif kind not in ("wait", "range"):
        name = _CALLS[kind]
    return {
        "ph": "X",
        "cat": kind if kind == "range" else f"host,{kind}",
        "name": name,
        "pid": _HOST,
        "tid": _thread(int(row["thread"])),
        "ts": int(row["host_begin"]) / 1e3,
        "dur": int(row["host_end"] - row["host_begin"]) / 1e3,
        "args": _facts(records, row, kind),
    }


def _on_device(records: Records, row: Any, kind: str) -> Event:
    return {
        "ph": "X",
        "cat": f"device,{kind}",
        "name": records.name_of(row),
        "pid": _FIRST_DEVICE + int(row["device"]),
        "tid": int(row["stream"]),
        "ts": int(row["device_begin"]) / 1e3,
        "dur": int(row["device_end"] - row["device_begin"]) / 1e3,
        "args": _facts(records, row, kind),
    }


def _arrow(row: Any) -> Iterator[Event]:
    number = int(row["number"])
    yield {
        "ph": "s",
        "cat": "given",
        "name": "given",
        "id": number,
        "pid": _HOST,
        "tid": _thread(int(row["thread"])),
        "ts": int(row["host_begin"]) / 1e3,
    }
    yield {
        "ph": "f",
        "bp": "e",
        "cat": "given",
        "name": "given",
        "id": number,
        "pid": _FIRST_DEVICE + int(row["device"]),
        "tid": int(row["stream"]),
        "ts": int(row["device_begin"]) / 1e3,
    }


def _facts(records: Records, row: Any, kind: str) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    if kind == "launch":
        facts["grid"] = [int(row[f"grid_{axis}"]) for axis in "xyz"]
        facts["block"] = [int(row[f"block_{axis}"]) for axis in "xyz"]
        facts["shared"] = int(row["shared"])
        subject = records.subjects[int(row["what"])]
        if isinstance(subject, Kernel) and subject.attributes.registers is not None:
            facts["registers"] = subject.attributes.registers
    if row["bytes"]:
        facts["bytes"] = int(row["bytes"])
    if row["line"]:
        facts["from"] = records.lines[int(row["line"])]
    if row["range"] and kind != "range":
        facts["range"] = records.range_path(int(row["range"]))
    if row["parent"]:
        facts["replay"] = int(row["parent"])
    return facts

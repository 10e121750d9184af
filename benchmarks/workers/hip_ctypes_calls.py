"""ctypes, as a program without any binding would launch through HIP."""

from __future__ import annotations

import ctypes
import platform
import sys

from benchmarks.measuring import NullDriver, control, launch_form, loop, measure, pin, report
from benchmarks.workers.cuda_setup import BLOCK, GRID, as_seen, values


def main(library: str) -> None:
    pin()
    hip = ctypes.CDLL(library)
    x, out, function, stream = (ctypes.c_void_p() for _ in range(4))
    for place in (x, out):
        hip.hipMalloc(ctypes.byref(place), ctypes.c_size_t(4096))
    hip.hipModuleGetFunction(ctypes.byref(function), None, b"three")
    hip.hipStreamCreate(ctypes.byref(stream))
    forms = [control()]
    kept = []
    for entry in ("three", "eight"):
        given = values(entry, x.value or 0, out.value or 0)
        pointers = (ctypes.c_void_p * len(given))(*map(ctypes.addressof, given))
        kept.append((given, pointers))
        names = {"launch": hip.hipModuleLaunchKernel, "function": function, "stream": stream}
        sizes = f"{GRID}, 1, 1, {BLOCK}, 1, 1, 0"
        prebuilt = loop(
            f"launch(function, {sizes}, stream, pointers, None)", pointers=pointers, **names
        )
        per_call = loop(
            f"now = values(entry, x, out); launch(function, {sizes}, stream, "
            "(pointer * len(now))(*map(addressof, now)), None)",
            values=values,
            entry=entry,
            x=x.value,
            out=out.value,
            pointer=ctypes.c_void_p,
            addressof=ctypes.addressof,
            **names,
        )
        forms.append(launch_form("prebuilt objects", prebuilt, as_seen(given)))
        forms.append(launch_form("built per call", per_call, as_seen(given)))
    report(
        measure("ctypes", forms, NullDriver(library)),
        versions={"python": platform.python_version()},
    )


if __name__ == "__main__":
    main(sys.argv[1])

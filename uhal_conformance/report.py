"""The report of a run: a table to read, JSON to send, as docs/reference/conformance.md says."""

from __future__ import annotations

import hashlib
import json
import platform
import time
from collections import Counter
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

import uhal
from uhal import Device, registry
from uhal.errors import DeviceError
from uhal_conformance.images import KERNELS, SUITE
from uhal_conformance.running import Outcome, Run
from uhal_conformance.sampling import SOAK

FORMAT = "uhal-conformance"
VERSION = 1
_OUTCOMES: tuple[Outcome, ...] = ("passed", "failed", "gap", "skipped")


def as_dict(run: Run) -> dict[str, Any]:
    """Return everything as plain values."""
    counts = Counter(one.outcome for one in run.results)
    return {
        "format": FORMAT,
        "version": VERSION,
        "conforms": run.conforms,
        "complete": run.complete,
        "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "uhal": uhal.__version__,
        "suite": suite_digest(),
        "backend": _backend(run.row.backend),
        "device": _device(run.row.backend, run.row.ordinal),
        "software": {
            "python": platform.python_version(),
            "numpy": np.__version__,
            "pytest": version("pytest"),
            "system": platform.platform(),
            "machine": platform.machine(),
        },
        "seed": run.seed,
        "counts": "full" if SOAK else "sampled",
        "seconds": round(run.seconds, 1),
        "summary": {outcome: counts[outcome] for outcome in _OUTCOMES},
        "gaps": _gaps(run),
        "tests": [asdict(one) for one in run.results],
    }


def suite_digest() -> str:
    """Return a digest of all tests and kernels, equal within one suite."""
    digest = hashlib.sha256()
    for path in [*sorted(SUITE.glob("test_*.py")), *sorted(KERNELS.glob("*.cu"))]:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def _backend(name: str) -> dict[str, Any]:
    record = registry.record(name)
    backend = registry.opened_backends().get(name)
    module = type(backend).__module__.partition(".")[0] if backend is not None else ""
    try:
        distribution = version(module) if module else None
    except PackageNotFoundError:
        distribution = None
    return {
        "name": name,
        "library": record.path,
        "version": record.version,
        "package": module,
        "package_version": distribution,
        "found": record.reason,
    }


def _device(backend: str, ordinal: int) -> dict[str, Any]:
    try:
        device = Device(ordinal, backend)
        return {
            "ordinal": ordinal,
            "name": device.name,
            "memory": device.memory_info().total,
            "limits": asdict(device.limits),
            "attributes": {key: str(value) for key, value in device.attributes.items()},
        }
    except DeviceError as failure:
        return {"ordinal": ordinal, "error": str(failure)}


def _gaps(run: Run) -> list[dict[str, Any]]:
    """Each reason once, with the tests that it left out."""
    left_out: dict[str, list[str]] = {}
    for one in run.results:
        if one.outcome == "gap":
            left_out.setdefault(one.reason, []).append(f"{one.file}::{one.name}")
    return [{"reason": reason, "tests": tests} for reason, tests in left_out.items()]


def text(run: Run) -> str:
    """Return the table, every failure's last line and every gap."""
    data = as_dict(run)
    device = data["device"]
    lines = [
        f"uhal {data['uhal']} on {run.row.name}: {device.get('name', device.get('error'))}",
        f"suite {data['suite']}, seed {data['seed']}, {data['counts']} counts, {data['seconds']} s",
        "",
        f"{'':20}" + "".join(f"{outcome:>9}" for outcome in _OUTCOMES),
    ]
    for file in dict.fromkeys(one.file for one in run.results):
        counts = Counter(one.outcome for one in run.results if one.file == file)
        lines.append(f"{file:20}" + "".join(f"{counts[one] or '·':>9}" for one in _OUTCOMES))
    lines.append(f"{'in all':20}" + "".join(f"{data['summary'][one]:>9}" for one in _OUTCOMES))
    for gap in data["gaps"]:
        lines.append(f"gap, {len(gap['tests'])} tests: {gap['reason']}")
    for one in run.results:
        if one.outcome == "failed":
            said = [line for line in one.reason.splitlines() if line.startswith("E ")]
            last = (said or one.reason.splitlines() or [""])[0].removeprefix("E").strip()
            lines.append(f"FAILED {one.file}::{one.name}: {last}")
    verdict = "conforms" if run.conforms else "does not conform"
    if not run.complete:
        verdict = "was asked for a part of the suite, which says nothing about conformance"
    lines += ["", f"{run.row.name} {verdict}."]
    return "\n".join(lines) + "\n"


def write(run: Run, path: Path) -> Path:
    """Write the JSON; return the path."""
    path.write_text(json.dumps(as_dict(run), indent=1, ensure_ascii=False) + "\n", "utf-8")
    return path

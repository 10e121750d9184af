"""Reports on this machine: every backend's record, and a test kernel on every device.

The kernel comes with ubridge, which is loaded by name so that `uhal` itself never needs it.
"""

from __future__ import annotations

import difflib
import importlib
import json
import os
import platform
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from uhal import environment, registry, terminal
from uhal._float_checks import lost_floats
from uhal._lane import DeviceBuffer, Function, Stream
from uhal._version import __version__
from uhal.contract import BackendRecord, DeviceSummary
from uhal.device import Device
from uhal.errors import DeviceError, NotSupportedError
from uhal.launch_config import LaunchConfig

_ROWS = 37
_COLUMNS = 53
_RELU = 0
_BATCHES = 15
_LAUNCHES_A_BATCH = 200
_WIDEST_FACTS = 72


@dataclass(frozen=True)
class Check:
    """Result of running a kernel on one device."""

    backend: str
    ordinal: int
    right: bool
    """The kernel ran and every number was right; without kernels, a copy was right."""
    result: str
    """`kernel right` with lost features of f32, `copies right` with a reason, or the fault."""
    launch_microseconds: float | None = None
    """Median time a launch takes the caller."""
    lost_floats: tuple[str, ...] = ()
    """Features of f32 that the device's compiler drops, such as `NaN`."""


@dataclass(frozen=True)
class Report:
    """All results of the doctor."""

    records: tuple[BackendRecord, ...]
    checks: tuple[Check, ...]
    chosen: str | None
    chosen_because: str
    versions: dict[str, str]
    environment: dict[str, str]
    """The variables that change what uhal does."""
    warnings: tuple[str, ...]

    @property
    def computes(self) -> bool:
        """True if a kernel gave the right result on at least one device."""
        return any(check.right for check in self.checks)

    @property
    def chosen_computes(self) -> bool:
        """True if a kernel gave the right result on the default device."""
        return _first_computes(self.chosen, self.checks)

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain lists and dictionaries."""
        return {
            "computes": self.computes,
            "chosen": self.chosen,
            "chosen_because": self.chosen_because,
            "chosen_computes": self.chosen_computes,
            "records": [asdict(record) for record in self.records],
            "devices": [
                {"backend": record.name, **asdict(device)}
                for record in self.records
                for device in record.devices
            ],
            "checks": [asdict(check) for check in self.checks],
            "versions": self.versions,
            "environment": self.environment,
            "warnings": list(self.warnings),
        }


def run(*, verbose: bool = False, as_json: bool = False) -> int:
    """Examine this machine and print the report; return 0 if the chosen device computes, else 1."""
    report = examine()
    if as_json:
        print(json.dumps(report.to_json(), indent=2))
    else:
        terminal.write(
            sys.stdout, "".join(f"{terminal.one_line(line)}\n" for line in _lines(report, verbose))
        )
    return 0 if report.chosen_computes else 1


def examine() -> Report:
    """Probe every backend, run a kernel on every device found, and return the report."""
    records = registry.records()
    checks = tuple(
        check_device(record.name, device.ordinal)
        for record in records
        if record.verdict == "ok"
        for device in record.devices
    )
    chosen, because = _choice(checks)
    return Report(
        records=records,
        checks=checks,
        chosen=chosen,
        chosen_because=because,
        versions={
            "uhal": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "platform": platform.platform(),
        },
        environment={
            name: value for name, value in sorted(os.environ.items()) if name.startswith("UHAL_")
        },
        warnings=_warnings(),
    )


def check_device(backend: str, ordinal: int) -> Check:
    """Run a kernel on random numbers, compare with numpy, and time a launch."""
    try:
        device = Device(ordinal, backend)
        with device:
            return _run_kernel(device)
    # A failure on one device goes into its row, and the others are still examined.
    except Exception as error:
        return Check(backend, ordinal, False, f"kernel FAILS: {type(error).__name__}: {error}")


def _run_kernel(device: Device) -> Check:
    ubridge = importlib.import_module("ubridge")
    values = np.random.default_rng().standard_normal((_ROWS, _COLUMNS), dtype=np.float32)
    try:
        ubridge.modules(device.backend)
    except NotSupportedError:
        return _copy(device, values)
    kernel = ubridge.load_module("activation", device=device).get_function("activationf32")
    with Stream(device=device) as stream, DeviceBuffer.from_numpy(values, device=device) as data:
        config = LaunchConfig.for_num_elems(data.size, device=device)
        kernel[config, stream](data, _ROWS, _COLUMNS, _RELU)
        got = data.to_numpy(stream=stream).reshape(_ROWS, _COLUMNS)
        wrong = _difference(got, np.maximum(values, 0))
        if wrong is not None:
            return Check(device.backend, device.ordinal, False, f"kernel WRONG: {wrong}")
        microseconds = _time_launch(kernel, stream, data)
    try:
        lost = lost_floats(ubridge, device)
    except NotSupportedError:
        lost = ()
    result = f"kernel right, without {', '.join(lost)} in f32" if lost else "kernel right"
    return Check(device.backend, device.ordinal, True, result, microseconds, lost)


def _copy(device: Device, values: npt.NDArray[np.float32]) -> Check:
    """Without kernels, copy numbers to the device and back."""
    with DeviceBuffer.from_numpy(values, device=device) as data:
        wrong = _difference(data.to_numpy().reshape(values.shape), values)
    result = f"copies WRONG: {wrong}" if wrong else "copies right, ubridge has no kernels for it"
    return Check(device.backend, device.ordinal, wrong is None, result)


def _difference(got: npt.NDArray[np.float32], expected: npt.NDArray[np.float32]) -> str | None:
    differs = got != expected
    if not differs.any():
        return None
    first = tuple(int(axis) for axis in np.argwhere(differs)[0])
    return (
        f"{int(differs.sum())} of {got.size} numbers differ, first at {first}: got {got[first]}, "
        f"expected {expected[first]}"
    )


def _time_launch(kernel: Function, stream: Stream, data: DeviceBuffer) -> float:
    """Return the median over batches of a tiny launch's cost for the caller."""
    launch = kernel[1, 1, 0, stream]
    times: list[float] = []
    for _ in range(_BATCHES):
        start = time.perf_counter()
        for _ in range(_LAUNCHES_A_BATCH):
            launch(data, 1, 1, _RELU)
        times.append(time.perf_counter() - start)
        stream.synchronize()
    return round(1e6 * statistics.median(times) / _LAUNCHES_A_BATCH, 3)


def _choice(checks: tuple[Check, ...]) -> tuple[str | None, str]:
    """Return the default backend and the reason for it; `None` and a reason without one."""
    override = os.environ.get(registry.OVERRIDE, "").strip()
    try:
        name = registry.choose()
    except DeviceError as error:
        return None, str(error)
    if override:
        return name, f"{registry.OVERRIDE}={override}"
    # The registry asks for a device, not whether kernels run on it.
    return name, "first that works" if _first_computes(name, checks) else "first with a device"


def _first_computes(backend: str | None, checks: tuple[Check, ...]) -> bool:
    """Say whether a kernel gave the right result on a backend's first device, the default."""
    return next((check.right for check in checks if check.backend == backend), False)


def _warnings() -> tuple[str, ...]:
    # Slow to import, and needed nowhere else.
    from importlib.metadata import PackageNotFoundError, version

    try:
        ipbus = version("uhal")
    except PackageNotFoundError:
        return ()
    return (
        f"CERN's IPbus library is installed too (PyPI's uhal {ipbus}); its import name is also "
        f"uhal, so which of the two a program gets is luck: pip uninstall uhal, then reinstall "
        f"uhal-py",
    )


@dataclass(frozen=True)
class _Row:
    name: str
    verdict: str
    facts: str
    advice: str


def _lines(report: Report, verbose: bool) -> list[str]:
    # Working devices come first; each group keeps the order in which backends are tried.
    records = sorted(report.records, key=lambda record: record.verdict != "ok")
    rows = {record.name: _rows(record, report) for record in records}
    widths = [len(row.facts) for found in rows.values() for row in found]
    width = min(max(widths, default=0), _WIDEST_FACTS)
    lines: list[str] = []
    for record in records:
        for row in rows[record.name]:
            line = f"{row.name:<6} {row.verdict:<8} {row.facts:<{width}}   {row.advice}"
            lines.append(line.rstrip())
        if verbose:
            lines.extend(_details(record))
    if report.chosen is None and registry.OVERRIDE in report.environment:
        # The records that follow the first line are in the rows above.
        because = report.chosen_because.splitlines()[0].rstrip(":")
        lines.append(f"nothing is chosen: {because}")
    lines.extend(f"warning: {warning}" for warning in report.warnings)
    if verbose:
        lines.extend(f"{name} {version}" for name, version in report.versions.items())
    if verbose or report.environment:
        reported = " ".join(f"{name}={value}" for name, value in report.environment.items())
        lines.append(f"set in the environment: {reported or 'nothing'}")
    known = environment.with_simulated()
    for name in report.environment:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            advice = f" Did you mean {near[0]}?" if near else ""
            lines.append(f"warning: {name} has no effect: uhal has no such variable.{advice}")
    return lines


def _rows(record: BackendRecord, report: Report) -> list[_Row]:
    """Return one row for the backend, or one for each of its devices."""
    if record.verdict != "ok":
        return [_Row(record.name, record.verdict, _short_reason(record), record.next_step)]
    checks = {check.ordinal: check for check in report.checks if check.backend == record.name}
    rows: list[_Row] = []
    for device in record.devices:
        check = checks[device.ordinal]
        verdict = "ok" if check.right else "broken"
        facts = _facts(device, check, numbered=len(record.devices) > 1)
        advice = ""
        if record.name == report.chosen and not rows:
            because = f"chosen: {report.chosen_because}"
            advice = f"← {because if check.right else _remedy(report, because)}"
        rows.append(_Row("" if rows else record.name, verdict, facts, advice))
    return rows


def _remedy(report: Report, because: str) -> str:
    """Say that the chosen device fails, and name the setting for a working device."""
    instead = next((check for check in report.checks if check.right), None)
    if instead is None:
        remedy = "no device here computes"
    elif instead.backend == report.chosen:
        # The variable names a backend, not one of its devices.
        remedy = f"use Device({instead.ordinal}, {instead.backend!r})"
    else:
        remedy = f"set {registry.OVERRIDE}={instead.backend}"
    return f"{because}, and broken: {remedy}"


def _facts(device: DeviceSummary, check: Check, *, numbered: bool) -> str:
    parts = [device.description or device.name, check.result]
    if check.launch_microseconds is not None:
        parts.append(f"{check.launch_microseconds:.2g} µs a launch")
    number = f"{device.ordinal}: " if numbered else ""
    return number + " · ".join(parts)


def _details(record: BackendRecord) -> list[str]:
    lines = [f"    {attempt.path}: {attempt.outcome}" for attempt in record.libraries_tried]
    if record.version is not None:
        lines.append(f"    version {record.version}")
    lines.extend(f"    device {device.ordinal}: {device.name}" for device in record.devices)
    return lines


def _short_reason(record: BackendRecord) -> str:
    """Return the reason; for a library not found in many paths, the number of paths tried."""
    count = len(record.libraries_tried)
    if count < 2 or any("No such file" not in tried.outcome for tried in record.libraries_tried):
        return record.reason
    library = Path(record.libraries_tried[0].path).name
    return f"{library}: not found in {count} paths (-v lists them)"

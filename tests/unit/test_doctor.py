"""The output of `python -m uhal`, and its exit status."""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.children import run_module, untold
from tests.fake_libcuda import build
from uhal import __version__, _simulators, doctor
from uhal.__main__ import main
from uhal._float_checks import lost_floats
from uhal.contract import BackendRecord, DeviceSummary, LibraryAttempt
from uhal.doctor import Check, Report
from uhal.errors import NotSupportedError

ROOT = Path(__file__).resolve().parents[2]


def uhal_command(
    *arguments: str, status: int | None = 0, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run `python -m uhal` with only the given UHAL_ variables."""
    result = run_module("uhal", arguments, {**untold(), **environment})
    assert status is None or result.returncode == status, result.stdout + result.stderr
    return result


def test_one_row_a_backend_and_the_host_computes() -> None:
    lines = uhal_command("doctor").stdout.splitlines()
    rows = {line.split()[0]: line for line in lines if line[:1].isalpha()}
    assert {"cuda", "rocm", "tops", "host"} <= set(rows)
    assert re.fullmatch(
        r"host   ok       \d+ cores?, .* · kernel right · [\d.e+]+ µs a launch( .*)?", rows["host"]
    )
    assert sum("← chosen: first that works" in line for line in lines) == 1


def test_a_misspelt_variable_is_named() -> None:
    lines = uhal_command("doctor", UHAL_BACKEND="host", UHAL_POL="guard").stdout.splitlines()
    assert lines[-1] == (
        "warning: UHAL_POL has no effect: uhal has no such variable. Did you mean UHAL_POOL?"
    )


def test_an_override_is_named() -> None:
    lines = uhal_command("doctor", UHAL_BACKEND="host").stdout.splitlines()
    assert lines[0].endswith("← chosen: UHAL_BACKEND=host")
    assert lines[-1] == "set in the environment: UHAL_BACKEND=host"


@pytest.mark.drawn(1)
@pytest.mark.parametrize("encoding", ["utf-8:strict", "ascii:strict"])
def test_libraries_with_paths_that_are_no_text_are_reported(encoding: str) -> None:
    strange = os.fsdecode(b"/nowhere/lib\xff.so")
    variables = {f"UHAL_{name}_LIBRARY": strange for name in ("CUDA", "ROCM", "TOPS", "OPENCL")}
    said = uhal_command("doctor", "-v", PYTHONIOENCODING=encoding, **variables).stdout
    assert said.count(r"/nowhere/lib\xff.so") >= 4


def test_an_override_that_names_nothing() -> None:
    said = uhal_command("doctor", status=1, UHAL_BACKEND="gpu").stdout
    expected = "expected one of cuda, rocm, tops, host, opencl, webgpu"
    assert f"nothing is chosen: UHAL_BACKEND: {expected}" in said
    assert "←" not in said


def test_no_device_that_computes_is_a_failure() -> None:
    nowhere = "/nonexistent/x.so"
    said = uhal_command(
        "doctor", "-v", status=1, UHAL_HOST_LIBRARY=nowhere, UHAL_OPENCL_LIBRARY=nowhere
    ).stdout
    assert "/nonexistent/x.so" in said
    assert "kernel right" not in said


def test_what_is_chosen_and_broken_is_a_failure(tmp_path: Path) -> None:
    """A driver whose device runs no kernel has priority over the working host."""
    driver = str(build(tmp_path))
    said = uhal_command("doctor", status=1, UHAL_CUDA_LIBRARY=driver).stdout
    cuda = next(line for line in said.splitlines() if line.startswith("cuda "))
    assert re.match(r"cuda   broken .* kernel FAILS: ", cuda)
    assert cuda.endswith("← chosen: first with a device, and broken: set UHAL_BACKEND=host")
    assert "first that works" not in said

    found = json.loads(uhal_command("doctor", "--json", status=1, UHAL_CUDA_LIBRARY=driver).stdout)
    assert (found["chosen"], found["chosen_computes"], found["computes"]) == ("cuda", False, True)
    assert found["chosen_because"] == "first with a device"

    # The setting that the report names is enough.
    mended = uhal_command("doctor", UHAL_CUDA_LIBRARY=driver, UHAL_BACKEND="host").stdout
    assert "← chosen: UHAL_BACKEND=host\n" in mended
    forced = uhal_command("doctor", status=1, UHAL_CUDA_LIBRARY=driver, UHAL_BACKEND="cuda").stdout
    assert "← chosen: UHAL_BACKEND=cuda, and broken: set UHAL_BACKEND=host\n" in forced


def test_json_is_one_object() -> None:
    found = json.loads(uhal_command("doctor", "--json", UHAL_BACKEND="host").stdout)
    assert found["computes"] is True
    assert found["chosen"] == "host"
    assert found["chosen_computes"] is True
    names = [record["name"] for record in found["records"]]
    assert names == ["cuda", "rocm", "tops", "host", "opencl", "webgpu"]
    assert {"backend", "ordinal", "name", "description"} <= set(found["devices"][0])
    assert all(check["result"] for check in found["checks"])
    assert set(found["versions"]) == {"uhal", "python", "numpy", "platform"}
    assert found["environment"] == {"UHAL_BACKEND": "host"}


def test_a_reader_that_stops_early_ends_it_quietly() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        command = [sys.executable, "-m", "uhal", "doctor"]
        finished = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True)
    finally:
        os.close(writer)
    assert finished.stderr == ""
    assert finished.returncode == 1


def test_version_and_help() -> None:
    assert uhal_command("--version").stdout == f"uhal {__version__}\n"
    assert "network_test" in uhal_command("--help").stdout
    assert "usage" in uhal_command("--nonsense", status=2).stderr


def test_cflags_compile_a_kernel_source(tmp_path: Path) -> None:
    flags = uhal_command("cflags").stdout
    include = next(flag for flag in shlex.split(flags) if flag.startswith("-I"))
    assert Path(include[2:], "uhal", "kernel.h").is_file()
    assert "unrecognized arguments: -x" in uhal_command("cflags", "-x", status=2).stderr


def test_a_simulated_driver_is_found_or_why_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "simulators" / "build"
    folder.mkdir(parents=True)
    monkeypatch.setattr(_simulators, "FOLDER", folder)

    def said(driver: str, status: int) -> str:
        assert main(["sim", "path", driver]) == status
        out, err = capsys.readouterr()
        return err if status else out

    assert "carries no libcuda.so.1" in said("cuda", 1)
    (tmp_path / "Makefile").touch()
    assert said("cuda", 1).endswith(f"run `make simulators` in {tmp_path}.\n")
    (folder / "libcuda.so.1").touch()
    assert said("cuda", 0) == f"{folder / 'libcuda.so.1'}\n"
    assert "libtopsrt.so.1 is not built" in said("tops", 1)
    with pytest.raises(SystemExit):
        main(["sim", "path", "host"])
    assert "choose from" in capsys.readouterr().err


def test_network_test_gets_the_rest_of_the_line() -> None:
    said = uhal_command("network_test", "--backend", "host", "--n", "4", "--json").stdout
    assert json.loads(said)
    assert "--save" in uhal_command("network_test", "--help").stdout


HOST = BackendRecord("host", "ok", "8 cores", devices=(DeviceSummary(0, "CPU", "8 cores, AVX2"),))
CUDA = BackendRecord(
    "cuda",
    "absent",
    "libcuda.so.1: No such file; /usr/lib/libcuda.so.1: No such file",
    "install the NVIDIA driver",
    (
        LibraryAttempt("libcuda.so.1", "No such file"),
        LibraryAttempt("/usr/lib/libcuda.so.1", "No such file"),
    ),
)


def report(*checks: Check, records: tuple[BackendRecord, ...], **other: Any) -> Report:
    facts: dict[str, Any] = {
        "chosen": "host",
        "chosen_because": "first that works",
        "versions": {"uhal": "1"},
        "environment": {},
        "warnings": (),
    }
    return Report(records=records, checks=checks, **{**facts, **other})


def printed(found: Report, *, verbose: bool = False) -> list[str]:
    """Return the lines that the command prints for a report."""
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as said:
        patch.setattr(doctor, "examine", lambda: found)
        assert doctor.run(verbose=verbose) == int(not found.chosen_computes)
    return said.getvalue().splitlines()


def test_rows_line_up_and_what_works_comes_first() -> None:
    found = report(Check("host", 0, True, "kernel right", 0.412), records=(CUDA, HOST))
    assert printed(found) == [
        "host   ok       8 cores, AVX2 · kernel right · 0.41 µs a launch      "
        "← chosen: first that works",
        "cuda   absent   libcuda.so.1: not found in 2 paths (-v lists them)   "
        "install the NVIDIA driver",
    ]
    verbose = printed(found, verbose=True)
    assert "    /usr/lib/libcuda.so.1: No such file" in verbose
    assert verbose[-1] == "set in the environment: nothing"


def test_a_library_that_opens_badly_keeps_its_words() -> None:
    attempts = (
        LibraryAttempt("libcuda.so.1", "No such file"),
        LibraryAttempt("/opt/libcuda.so.1", "invalid ELF header"),
    )
    refused = BackendRecord("cuda", "absent", "/opt/libcuda.so.1: invalid ELF header", "", attempts)
    lines = printed(report(records=(refused,)))
    assert lines[0].startswith("cuda   absent   /opt/libcuda.so.1: invalid ELF header")


def test_each_device_has_a_row_and_a_broken_one_says_so() -> None:
    two = BackendRecord(
        "rocm", "ok", "", devices=(DeviceSummary(0, "a", "card"), DeviceSummary(1, "b", "card"))
    )
    found = report(
        Check("rocm", 0, False, "kernel WRONG: 1 of 4 numbers differ"),
        Check("rocm", 1, True, "kernel right", 12.3),
        records=(two,),
        chosen="rocm",
        warnings=("beware",),
    )
    first, second, last = printed(found)
    assert first.startswith("rocm   broken   0: card · kernel WRONG: 1 of 4 numbers differ   ← ch")
    # No variable selects the second device of a backend.
    assert first.endswith("and broken: use Device(1, 'rocm')")
    assert not found.chosen_computes
    assert second == "       ok       1: card · kernel right · 12 µs a launch"
    assert last == "warning: beware"
    assert found.computes
    one = BackendRecord("rocm", "ok", "", devices=two.devices[:1])
    alone = report(found.checks[0], records=(one,), chosen="rocm")
    assert not alone.computes
    assert printed(alone)[0].endswith("and broken: no device here computes")


def test_wrong_numbers_are_told() -> None:
    expected = np.zeros((2, 3), np.float32)
    assert doctor._difference(expected.copy(), expected) is None
    got = expected.copy()
    got[1, 2] = np.nan
    assert doctor._difference(got, expected) == (
        "1 of 6 numbers differ, first at (1, 2): got nan, expected 0.0"
    )


def test_a_device_that_raises_is_one_broken_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(device: object) -> Check:
        raise OSError("the card is gone")

    monkeypatch.setattr(doctor, "_run_kernel", fail)
    check = doctor.check_device("host", 0)
    assert not check.right
    assert check.result == "kernel FAILS: OSError: the card is gone"


def test_a_backend_without_kernels_of_ubridge_is_checked_by_a_copy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def nobody_brings_them(backend: str | None = None) -> tuple[str, ...]:
        raise NotSupportedError("ubridge has no kernels for it", backend=backend)

    monkeypatch.setattr("ubridge.modules", nobody_brings_them)
    check = doctor.check_device("host", 0)
    assert check.right and check.result == "copies right, ubridge has no kernels for it"
    assert check.launch_microseconds is None
    monkeypatch.setattr(doctor, "_difference", lambda got, expected: "all of it")
    assert doctor.check_device("host", 0).result == "copies WRONG: all of it"


class Careless:
    """ubridge on a device whose compiler drops one feature of f32."""

    def __init__(self, lost: str) -> None:
        self.lost = lost

    def asarray(self, values: Any, device: object) -> Any:
        given = "NaN" if self.lost == "NaN" else ""
        values = np.nan_to_num(values, nan=7, posinf=np.inf, neginf=-np.inf) if given else values
        return Given(values, self.lost)

    def isnan(self, given: Any) -> Any:
        return Given(np.isnan(given.values), self.lost)

    def sum(self, given: Any) -> Any:
        if self.lost == "rests of sums":
            return np.cumsum(given.values)[-1]
        return np.float32(given.values.sum(dtype=np.float64))

    def normcdf(self, given: Any) -> Any:
        root = np.float32(math.sqrt(0.5))
        arguments = -given.values.astype(np.float64) * math.sqrt(0.5)
        if self.lost == "rests of products":
            product = -given.values.astype(np.float64) * root
            arguments += product.astype(np.float32) - product
        shares = np.array([math.erfc(one) / 2 for one in arguments], np.float32)
        return Given(shares, self.lost)


class Given:
    def __init__(self, values: Any, lost: str) -> None:
        self.values, self.lost = values, lost

    def __rtruediv__(self, other: int) -> Given:
        with np.errstate(divide="ignore"):
            found = np.float32(other) / self.values
        if self.lost == "infinities":
            found = np.clip(found, -3e38, 3e38)
        if self.lost == "signs of zeros":
            found = np.where(found == 0, np.float32(0), found)
        return Given(found, self.lost)

    def to_numpy(self) -> Any:
        return self.values


@pytest.mark.parametrize(
    "lost", ["", "NaN", "infinities", "signs of zeros", "rests of sums", "rests of products"]
)
def test_what_f32_lacks_on_a_device_is_named(lost: str) -> None:
    for _ in range(20):
        assert lost_floats(Careless(lost), None) == ((lost,) if lost else ())


def test_the_host_keeps_all_of_f32() -> None:
    assert doctor.check_device("host", 0).lost_floats == ()


def test_the_row_says_what_f32_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "lost_floats", lambda *_: ("NaN", "signs of zeros"))
    check = doctor.check_device("host", 0)
    assert check.right and check.lost_floats == ("NaN", "signs of zeros")
    assert check.result == "kernel right, without NaN, signs of zeros in f32"


def test_the_ipbus_distribution_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.metadata

    monkeypatch.setattr(importlib.metadata, "version", lambda name: "2.8.12")
    (warning,) = doctor._warnings()
    assert "CERN's IPbus library is installed too (PyPI's uhal 2.8.12)" in warning

"""Every driver function: exported, found by version, refused where it is not simulated."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.simulated.driver_functions import Form, forms
from tests.simulated.process import LIBRARY, needs_simulator, run_freely, run_program
from tests.simulated_driver import HEADER

pytestmark = needs_simulator

HEADERS = next(
    (path for path in Path("/usr/local").glob("cuda*/include") if (path / "cuda.h").is_file()), None
)
NEWEST = 13050


def test_the_library_exports_what_the_list_says() -> None:
    listed = [symbol for form in forms() for symbol in form.symbols]
    assert len(listed) == len(set(listed))
    said = subprocess.run(
        ["nm", "-D", "--defined-only", LIBRARY], capture_output=True, text=True, check=True
    ).stdout
    exported = {line.split()[-1].split("@")[0] for line in said.splitlines()}
    assert {symbol for symbol in exported if symbol.startswith("cu")} == set(listed)


def test_the_list_has_every_form_of_nvidias_headers() -> None:
    if HEADERS is None:
        pytest.skip("no cuda.h of a CUDA toolkit here")
    text = "".join(path.read_text() for path in HEADERS.glob("cuda*Typedefs.h"))
    version = re.search(r"CUDA_VERSION (\d+)", (HEADERS / "cuda.h").read_text())
    assert version is not None
    theirs = {(name, int(since)) for name, since in re.findall(r"PFN_(cu\w+?)_v(\d+)\)", text)}
    assert len(theirs) > 500
    ours = {(form.name, form.since) for form in forms() if form.since <= int(version[1])}
    assert ours == theirs
    # Some say of a second form when it came, others when the first did.
    theirs_too = set(re.findall(r"PFN_(cu\w+?)_v\d+(_ptsz|_ptds)\)", text))
    assert {(form.name, form.suffix) for form in forms() if form.suffix} >= theirs_too


def test_versions_are_those_the_backend_states() -> None:
    since = {form.symbol: form.since for form in forms()}
    stated = {
        name.removeprefix("UHAL_SINCE_"): version
        for name, version in HEADER.constants.items()
        if name.startswith("UHAL_SINCE_")
    }
    assert len(stated) > 100
    assert {name: since[name] for name in stated} == stated


def test_what_is_not_simulated_refuses_in_words(tmp_path: Path) -> None:
    report = tmp_path / "report"
    refusing = [form for form in forms() if form.reason]
    assert len(refusing) > 250
    arguments = [f"{one.name} {one.symbol} {one.since} {one.suffix or '-'}" for one in refusing]
    answers = run_program("call_with_zeros.py", *arguments, UHAL_SIM_REPORT=str(report))
    assert answers.splitlines() == [
        f"{form.symbol} 801 not supported ({form.symbol}: {form.reason})" for form in refusing
    ]
    told = re.findall(r"call +(\w+)\n +what +(.+)\n", report.read_text())
    assert sorted(told) == sorted((form.symbol, form.reason) for form in refusing)


@pytest.mark.parametrize("version", [11040, 12040, NEWEST])
def test_a_driver_finds_what_its_version_has(version: int) -> None:
    done = run_freely("-c", FIND_ALL, str(LIBRARY), UHAL_SIM_CUDA_DRIVER=str(version))
    assert done.returncode == 0, done.stderr
    newest: dict[str, Form] = {}
    for form in forms():
        if form.since <= version:
            newest[form.name] = max(newest.get(form.name, form), form, key=lambda one: one.since)
    assert dict(line.split() for line in done.stdout.splitlines()) == {
        name: form.symbol for name, form in newest.items()
    }


# In a process of its own, for a library reads its settings once. Prints name and symbol.
FIND_ALL = """
import ctypes, sys
from tests.simulated.driver_functions import forms
library = ctypes.CDLL(sys.argv[1])
version = ctypes.c_int()
assert library.cuDriverGetVersion(ctypes.byref(version)) == 0
address = lambda function: ctypes.cast(function, ctypes.c_void_p).value
symbols = {address(getattr(library, form.symbol)): form.symbol for form in forms()}
for name in sorted({form.name for form in forms()}):
    found, flags = ctypes.c_void_p(), ctypes.c_uint64()
    asked = name.encode(), ctypes.byref(found), version, flags
    code = library.cuGetProcAddress(*asked)
    assert code == (0 if found.value else 500), (name, code)
    if found.value:
        print(name, symbols[found.value])
"""

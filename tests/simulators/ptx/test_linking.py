"""A C compiler links kernels; without a compiler, a wheel's linker links them."""

from __future__ import annotations

import ctypes
import math
import sys
from pathlib import Path

import numpy as np
import pytest

from simulators.ptx import cache, linking
from tests.requirements import needed_module

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="simulated drivers are Linux's")

SOURCE = """
#include <math.h>
#ifdef MISSING
double missing(double);
#define erf missing
#endif
__attribute__((visibility("default"))) double twice_erf(double x) { return 2 * erf(x); }
"""


@pytest.fixture(params=["cc", "ziglang"])
def toolchain(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.delenv("CC", raising=False)
    if request.param == "ziglang":
        needed_module("ziglang")
        monkeypatch.setattr(linking.shutil, "which", lambda name: None)
    return str(request.param)


def made(folder: Path, *options: str) -> Path:
    source, built, library = (folder / f"made.{end}" for end in ("c", "o", "so"))
    source.write_text(SOURCE)
    linking.compile_object(source, built, *options)
    linking.link(library, [built])
    return library


def test_what_is_linked_computes(toolchain: str, tmp_path: Path, rng: np.random.Generator) -> None:
    twice_erf = ctypes.CDLL(str(made(tmp_path))).twice_erf
    twice_erf.argtypes, twice_erf.restype = [ctypes.c_double], ctypes.c_double
    x = float(rng.standard_normal())
    assert twice_erf(x) == 2 * math.erf(x)


def test_a_helper_that_is_missing_is_an_error_of_the_link(toolchain: str, tmp_path: Path) -> None:
    with pytest.raises(linking.BuildError, match=r"(?s)failed:.*missing"):
        made(tmp_path, "-DMISSING")


def test_the_run_time_is_complete(
    toolchain: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UHAL_SIM_CACHE", str(tmp_path / "cache"))
    ctypes.CDLL(str(cache.runtime_library()))


def test_without_either_the_message_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "/nonexistent/cc")
    with pytest.raises(linking.BuildError, match=r"cannot be started.*set CC.*uhal-py\[kernels\]"):
        made(tmp_path)

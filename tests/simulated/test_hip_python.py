"""`uhal.compile.hip` through hip-python from PyPI, unchanged, over a stand-in for libhiprtc."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import uhal.compile
from tests.children import ROOT, check_child
from tests.requirements import missing
from tests.simulated import third_party
from tests.simulated.process import PROGRAMS
from uhal import DeviceError
from uhal_conformance.kept_folders import kept_folder


def compile_twice() -> None:
    """Compiled code is returned; an error raises with the compiler's output."""
    options = ["--offload-arch=gfx90a", "-O3"]
    code = b"source|uhal.hip|0|--offload-arch=gfx90a|-O3"
    assert uhal.compile.hip("source", options) == code
    with pytest.raises(DeviceError, match=r"line 1: error$"):
        uhal.compile.hip("bad")


def test_hip_python(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        missing("there is no C compiler for the test's libhiprtc")
    site = third_party.install(kept_folder(request.config, "third_party"), third_party.HIP_PYTHON)
    library = tmp_path / "lib" / "libhiprtc.so"
    library.parent.mkdir()
    subprocess.run([compiler, "-shared", "-fPIC", PROGRAMS / "hiprtc.c", "-o", library], check=True)
    environment = {
        "PYTHONPATH": os.pathsep.join((str(site), str(ROOT))),
        "ROCM_PATH": str(tmp_path),
        "LD_LIBRARY_PATH": str(library.parent),
    }
    # Each compilation destroys its program.
    assert check_child(compile_twice, environment=environment) == "destroyed\n" * 2

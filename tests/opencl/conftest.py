"""Fixtures of the OpenCL tests: a device of a vendor's runtime, and Debian's tools."""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from opencl_backend._library import candidates
from tests.children import ROOT
from tests.conformance.rows import ROWS
from tests.debian_packages import unpack
from tests.requirements import missing
from uhal import Device
from uhal_conformance.kept_folders import kept_folder

ROW = next(row for row in ROWS if row.name == "opencl")


@pytest.fixture(scope="session")
def folder(request: pytest.FixtureRequest) -> Path:
    """Folder of compiled kernels and packages, kept between runs."""
    return kept_folder(request.config, "kernels")


LAYERS = {
    "usm": {},
    "svm-fine": {"UHAL_LAYER_HIDES": "cl_intel_unified_shared_memory"},
    "svm-coarse": {
        "UHAL_LAYER_HIDES": "cl_intel_unified_shared_memory",
        "UHAL_LAYER_SVM": "1",
    },
    "buffer-address": {
        "UHAL_LAYER_HIDES": "cl_intel_unified_shared_memory",
        "UHAL_LAYER_SVM": "0",
        "UHAL_LAYER_BUFFERS": "1",
    },
}
"""Devices limited to one kind of memory."""


@pytest.fixture(scope="session")
def layer(folder: Path) -> Callable[..., Mapping[str, str]]:
    """Makes the environment of a device with fewer or more features than Intel's: see `layer.c`."""
    source = Path(__file__).with_name("layer.c")
    below = Path(candidates()[-1])
    if below.name != "libintelocl.so":
        missing("needs pip install intel-opencl-rt intel-cmplr-lib-rt")
    digest = hashlib.sha256(source.read_bytes() + str(below).encode()).hexdigest()[:16]
    built = folder / f"layer-{digest}.so"
    if not built.exists():
        unfinished = built.with_suffix(f".{os.getpid()}")
        command = [*shlex.split(os.environ.get("CC", "cc")), "-std=c11", "-Wall", "-Werror"]
        command += ["-shared", "-fPIC", "-pthread", f"-I{ROOT / 'opencl_backend'}", str(source)]
        # Link with Intel's library, which provides the functions that the layer lacks.
        command += ["-Wl,--no-as-needed", str(below), f"-Wl,-rpath,{below.parent}", "-ldl"]
        subprocess.run([*command, "-o", str(unfinished)], check=True)
        unfinished.replace(built)

    def environment(memory: str = "usm", **variables: str) -> Mapping[str, str]:
        cache = {"UHAL_OPENCL_CACHE": str(folder / "opencl")}
        return {"UHAL_OPENCL_LIBRARY": str(built), **cache, **LAYERS[memory], **variables}

    return environment


@pytest.fixture(scope="session")
def packages(request: pytest.FixtureRequest) -> Path:
    """Debian's OpenCL loader, Khronos's headers and tools."""
    return unpack(kept_folder(request.config, "debian"), "opencl")


@pytest.fixture(scope="module")
def runtime(folder: Path) -> Iterator[None]:
    """Set the environment of the conformance suite's row."""
    assert ROW.prepare is not None
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**ROW.environment, **ROW.prepare(folder)}.items():
            patch.setenv(name, value)
        yield


@pytest.fixture
def device(runtime: None) -> Iterator[Device]:
    """A device, current while a test runs."""
    with Device(0, "opencl") as device:
        yield device

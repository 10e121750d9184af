"""The ROCm backend without a device, on AMD's runtime of 2022 from Debian 12.

`tests/rocr` runs a newer one over a model of a device.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.children import ROOT, check_child, untold
from tests.debian_packages import LIBRARIES, unpack
from uhal import Api, NoDeviceError
from uhal_conformance.kept_folders import kept_folder

FOUND = "runtime found, no device"


@pytest.fixture(scope="module")
def environment(request: pytest.FixtureRequest) -> Mapping[str, str]:
    """Environment in which a program finds the runtime, and the runtime its own libraries."""
    if Path("/dev/kfd").exists():
        pytest.skip("there is a driver for AMD devices here: tests with --device rocm use it")
    library = (
        unpack(kept_folder(request.config, "debian"), "rocr-5.2")
        / LIBRARIES
        / "libhsa-runtime64.so.1"
    )
    return {"UHAL_ROCM_LIBRARY": str(library), "LD_LIBRARY_PATH": str(library.parent)}


def test_doctor_finds_the_runtime(environment: Mapping[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "uhal", "doctor", "--json"],
        cwd=ROOT,
        env={**untold(), **environment},
        capture_output=True,
        encoding="utf-8",
        timeout=120,
    )
    # The status of an aborted process is negative. The command succeeds because the host computes.
    assert done.returncode == 0, done.stderr
    (record,) = (found for found in json.loads(done.stdout)["records"] if found["name"] == "rocm")
    assert record["verdict"] == "absent" and record["reason"].startswith(FOUND)
    assert record["path"] == environment["UHAL_ROCM_LIBRARY"]
    assert "/dev/kfd" in record["next_step"]


def ask_for_a_device() -> None:
    """Try to open a device twice: the first failure leaves the runtime usable."""
    for _ in range(2):
        with pytest.raises(NoDeviceError, match=FOUND):
            Api.quick_init(0, "rocm")


def test_a_program_is_told(environment: Mapping[str, str]) -> None:
    assert check_child(ask_for_a_device, environment=environment) == ""

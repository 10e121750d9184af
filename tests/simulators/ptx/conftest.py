"""Every test here executes PTX, which takes llvmlite; libraries are made in a folder of the run."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

if importlib.util.find_spec("llvmlite") is None:
    collect_ignore_glob = ["test_*.py"]

HERE = Path(__file__).resolve().parent


def pytest_report_header() -> str:
    if importlib.util.find_spec("llvmlite") is None:
        return "PTX: not tested, llvmlite is not installed (pip install 'uhal-py[sim]')"
    return "PTX: executed with llvmlite"


@pytest.fixture(autouse=True, scope="session")
def cache_of_this_run(tmp_path_factory: pytest.TempPathFactory) -> None:
    import os

    os.environ.setdefault("UHAL_SIM_CACHE", str(tmp_path_factory.mktemp("ptx")))

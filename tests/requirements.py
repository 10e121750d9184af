"""Skips or failures of tests whose requirements are missing.

The project's scripts install compilers, simulators and packages; if these are missing in CI, tests
fail. The scripts cannot provide hardware, vendors' toolkits, or gdb and valgrind where Debian lacks
them. Tests that need these are skipped.
"""

from __future__ import annotations

import importlib
import os
from typing import Any, NoReturn

import pytest


def missing(reason: str) -> NoReturn:
    """Fail in CI, where the project's scripts install everything; elsewhere skip with the
    reason."""
    if os.environ.get("CI"):
        pytest.fail(f"in CI this must be there: {reason}", pytrace=False)
    pytest.skip(reason, allow_module_level=True)


def needed(present: object, reason: str) -> pytest.MarkDecorator:
    """Mark tests that need something: skipped with `reason` if missing, but run in CI."""
    return pytest.mark.skipif(not present and not os.environ.get("CI"), reason=reason)


def needed_module(name: str) -> Any:
    """Import a package that one of the extras installs."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        missing(f"pip install {name.partition('.')[0]}: {error}")

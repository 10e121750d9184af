"""A device under test, with its gaps in writing.

A gap has one of three kinds. `unsupported` is permanent and describes the backend. `unsimulated`
describes the simulated device; the test runs on a real device. `expected_failures` is temporary:
the test must fail, and the run fails once the test passes. Keys are patterns of a test's name.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from uhal import registry


@dataclass(frozen=True)
class DeviceRow:
    """One device under test."""

    name: str
    backend: str
    compile: Callable[[Path, Path], Path]
    """Makes an image of a kernel source, in a folder that is kept between runs."""
    ordinal: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)
    """Set before the backend is opened."""
    two_devices: Mapping[str, str] | None = None
    """Additional environment for two devices; `None` for a single device."""
    unsupported: Mapping[str, str] = field(default_factory=dict)
    unsimulated: Mapping[str, str] = field(default_factory=dict)
    expected_failures: Mapping[str, str] = field(default_factory=dict)
    unsupported_fixtures: Mapping[str, str] = field(default_factory=dict)
    """Fixtures whose tests the backend cannot run, with the reason."""
    prepare: Callable[[Path], Mapping[str, str]] | None = None
    """Prepares the row in a folder; returns environment variables. May skip the row."""
    compile_on: Callable[[int, Path, Path], Path] | None = None
    """Like `compile`, for the real device of an ordinal; `None` where images suit every device."""

    @property
    def skipped(self) -> Mapping[str, str]:
        """Reasons of tests that cannot pass: unsupported or unsimulated."""
        return {**self.unsupported, **self.unsimulated}


@contextlib.contextmanager
def in_place(row: DeviceRow, folder: Path) -> Iterator[None]:
    """Set a row's environment and install its distribution, inside a `with` block."""
    prepared = row.prepare(folder) if row.prepare is not None else {}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**row.environment, **prepared}.items():
            patch.setenv(name, value)
        if "PYTHONPATH" in prepared:  # of a distribution that is installed for this row alone
            patch.syspath_prepend(prepared["PYTHONPATH"].partition(os.pathsep)[0])
        registry.look_again()
        yield
    registry.look_again()

"""What the host's backend says of itself: its library, and what to do without one."""

from __future__ import annotations

from pathlib import Path

import pytest

from host_backend import backend
from uhal.errors import LibraryNotFoundError


def test_the_runtime_of_this_build_is_found() -> None:
    found = backend.probe()
    assert (found.name, found.verdict, found.next_step) == ("host", "ok", "")
    assert found.devices and found.reason == found.devices[0].description
    opened = backend.open()
    assert found.version == opened.version() and len(found.devices) == opened.device_count()


def test_a_library_that_is_not_there_is_absent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("UHAL_HOST_LIBRARY", str(tmp_path / "none.so"))
    found = backend.probe()
    assert (found.verdict, found.next_step) == ("absent", "unset UHAL_HOST_LIBRARY")
    assert str(tmp_path) in found.reason
    with pytest.raises(LibraryNotFoundError, match=r"none\.so"):
        backend.open()


def test_a_setting_that_is_no_number_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UHAL_HOST_THREADS", "many")
    found = backend.probe()
    assert found.verdict == "refused" and "UHAL_HOST_THREADS" in found.reason

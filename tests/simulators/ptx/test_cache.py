"""The folder of translated kernels: its owner, its size, and the order of removal."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import pytest

from simulators.ptx import cache

pytestmark = pytest.mark.skipif(os.name != "posix", reason="owners and modes")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("UHAL_SIM_CACHE", str(tmp_path / "made" / "ptx"))
    monkeypatch.delenv("UHAL_SIM_CACHE_LIMIT", raising=False)
    return cache.private(cache.folder())


def keep(folder: Path, name: str, nbytes: int, age: float) -> Path:
    path = folder / name
    path.write_bytes(bytes(nbytes))
    path.chmod(0o600)
    then = time.time() - age
    os.utime(path, (then, then))
    return path


def test_a_folder_is_made_for_this_user_alone(folder: Path) -> None:
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert not cache.usable(folder / "none.so")


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777])
def test_a_folder_that_others_can_write_to_is_refused(folder: Path, mode: int) -> None:
    folder.chmod(mode)
    with pytest.raises(cache.CacheError, match=rf"mode {mode:o}.*not trusted.*UHAL_SIM_CACHE"):
        cache.usable(folder / "none.so")


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_a_library_that_others_can_write_to_is_refused(folder: Path, mode: int) -> None:
    library = keep(folder, f"{0:040x}.so", 1, 0)
    assert cache.usable(library)
    library.chmod(mode)
    with pytest.raises(cache.CacheError, match=r"can be written by others .*chmod go-w"):
        cache.usable(library)


def test_what_belongs_to_another_user_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = keep(folder, f"{0:040x}.so", 1, 0)
    other = os.geteuid() + 1
    monkeypatch.setattr(cache.os, "geteuid", lambda: other)
    with pytest.raises(cache.CacheError, match=rf"belongs to user {other - 1} and not to user"):
        cache.usable(library)


def test_a_link_is_not_followed(folder: Path, tmp_path: Path) -> None:
    outside = keep(tmp_path, "outside.so", 1, 0)
    (folder / f"{0:040x}.so").symlink_to(outside)
    with pytest.raises(cache.CacheError, match="is no file"):
        cache.usable(folder / f"{0:040x}.so")


def test_what_was_not_used_for_longest_goes_first(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UHAL_SIM_CACHE_LIMIT", "100K")
    days = [keep(folder, f"{day:040x}.so", 20 << 10, day * 86400) for day in range(1, 7)]
    other = keep(folder, "letters.txt", 1 << 20, 1e8)
    # A used file becomes the newest.
    assert cache.usable(days[-1])
    cache.prune(folder)
    assert [path.exists() for path in days] == [True, True, False, False, False, True]
    assert other.exists(), "what is no file of ours stays"
    cache.prune(folder)
    assert sum(path.exists() for path in days) == 3


def test_what_may_be_in_use_stays(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UHAL_SIM_CACHE_LIMIT", "1K")
    path = keep(folder, f"{1:040x}.ptx", 1 << 20, 60)
    cache.prune(folder)
    assert path.exists()


@pytest.mark.parametrize("text", ["much", "-1", "1GB", "9" * 400])
def test_an_impossible_limit_is_said(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("UHAL_SIM_CACHE_LIMIT", text)
    with pytest.raises(cache.CacheError, match="UHAL_SIM_CACHE_LIMIT: expected bytes such as"):
        cache.limit()


def test_libraries_appear_for_this_user_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = os.umask(0)
    try:
        library = cache.runtime_library()
    finally:
        os.umask(before)
    assert stat.S_IMODE(library.stat().st_mode) == 0o600
    assert cache.usable(library)
    assert [one.name for one in folder.iterdir()] == [library.name], "nothing unfinished is left"

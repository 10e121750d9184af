"""Folders of code: made for one user, refused where others can write."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from uhal.images.private_folder import private_folder, read_own, user_cache


@pytest.fixture(params=[0, 0o002, 0o277])
def mask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def test_new_folders_are_of_one_user_for_any_mask(tmp_path: Path, mask: int) -> None:
    folder = private_folder(tmp_path / "a" / "b" / "c")
    for one in (folder, folder.parent, folder.parent.parent):
        assert stat.S_IMODE(one.stat().st_mode) == 0o700
    assert private_folder(folder) == folder


def test_a_parent_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    private_folder(tmp_path / "new")
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777])
def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    with pytest.raises(PermissionError, match=f"^{tmp_path} may be written by others"):
        private_folder(tmp_path)


def test_what_belongs_to_others_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"code")
    (tmp_path / "file").chmod(0o600)
    assert read_own(tmp_path / "file", 4) == b"code"
    other = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: other)
    with pytest.raises(PermissionError, match="belongs to another user"):
        private_folder(tmp_path)
    assert read_own(tmp_path / "file", 4) is None


def test_what_is_no_folder_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OSError, match="file"):
        private_folder(tmp_path / "file")
    with pytest.raises(OSError, match="file"):
        private_folder(tmp_path / "file" / "inside")


def test_only_own_files_of_a_size_are_read(tmp_path: Path) -> None:
    assert read_own(tmp_path / "none", 4) is None
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "long").write_bytes(b"12345")
    (tmp_path / "link").symlink_to(tmp_path / "long")
    for name in ("fifo", "long", "link", "."):
        assert read_own(tmp_path / name, 4) is None
    assert read_own(tmp_path / "long", 5) == b"12345"


def test_the_users_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert user_cache("x") == tmp_path / "uhal" / "x"
    for value in ("", "relative/folder"):
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert user_cache("x") == Path.home() / ".cache" / "uhal" / "x"

    def homeless() -> Path:
        raise RuntimeError("no home")

    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(OSError, match=r"no home.*XDG_CACHE_HOME"):
        user_cache("x")

"""Programs kept from process to process: private, whole, bounded, built once."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.children import ROOT
from uhal.images.program_cache import MAX_BYTES, ProgramCache, key_of

KEY = key_of("a", b"b")


def test_what_is_kept_is_found(tmp_path: Path) -> None:
    cache = ProgramCache(tmp_path / "made" / "here")
    assert cache.find(KEY) is None
    cache.keep(KEY, b"program")
    assert cache.find(KEY) == b"program"
    assert ProgramCache(tmp_path / "made" / "here").find(KEY) == b"program"
    cache.forget(KEY)
    assert cache.find(KEY) is None


def test_keys_tell_where_parts_end() -> None:
    assert key_of("ab", "c") != key_of("a", "bc") != key_of("abc")


def test_others_can_neither_read_nor_write_it(tmp_path: Path) -> None:
    cache = ProgramCache(tmp_path / "cache")
    cache.keep(KEY, b"program")
    assert (tmp_path / "cache").stat().st_mode & 0o077 == 0
    assert all(path.stat().st_mode & 0o077 == 0 for path in (tmp_path / "cache").iterdir())


@pytest.mark.parametrize("damage", ["cut", "changed", "another's", "empty", "long"])
def test_what_is_damaged_is_forgotten(tmp_path: Path, damage: str) -> None:
    cache = ProgramCache(tmp_path)
    cache.keep(KEY, b"program of some length")
    (path,) = tmp_path.glob("*.bin")
    whole = path.read_bytes()
    cache.keep(key_of("other"), b"another")
    other = next(one for one in tmp_path.glob("*.bin") if one != path).read_bytes()
    damages = {
        "cut": whole[:-3],
        "changed": whole[:-1] + b"?",
        "another's": other,
        "empty": b"",
        "long": whole + b"\0",
    }
    path.write_bytes(damages[damage])
    assert cache.find(KEY) is None
    assert not path.exists()


def test_a_folder_that_others_write_to_is_not_used(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    cache = ProgramCache(tmp_path)
    assert cache.folder is None
    assert "may be written by others" in cache.refusal
    cache.keep(KEY, b"program")
    assert cache.find(KEY) is None
    with cache.held(KEY):
        assert list(tmp_path.iterdir()) == []


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"mine")
    folder = tmp_path / "cache"
    cache = ProgramCache(folder)
    (folder / f".{KEY}.bin.{os.getpid()}").symlink_to(victim)
    cache.keep(KEY, b"program")
    assert victim.read_bytes() == b"mine"


def test_what_was_not_used_for_longest_makes_room(tmp_path: Path) -> None:
    cache = ProgramCache(tmp_path, max_bytes=10_000)
    keys = [key_of(str(number)) for number in range(12)]
    for age, key in enumerate(keys):
        cache.keep(key, bytes(900))
        for path in tmp_path.glob(f"{key}*"):
            os.utime(path, (age, age))
        if age == 5:
            assert cache.find(keys[0]) is not None  # a use makes it the newest
    assert sum(path.stat().st_size for path in tmp_path.glob("*.bin")) <= 10_000
    found = [key for key in keys if cache.find(key) is not None]
    assert keys[0] in found and keys[-1] in found
    assert keys[1] not in found
    cache.keep(key_of("large"), bytes(5000))
    assert cache.find(key_of("large")) is None


def test_other_files_of_the_folder_stay(tmp_path: Path) -> None:
    names = ("pytorch_model.bin", "a.bin.index.json", f"{'0' * 63}.bin", f"{'0' * 64}.bin.gz")
    for name in names:
        (tmp_path / name).write_bytes(bytes(100))
        os.utime(tmp_path / name, (1, 1))
    left_by_a_killed_process = tmp_path / f".{'0' * 64}.bin.123"
    left_by_a_killed_process.write_bytes(bytes(900))
    os.utime(left_by_a_killed_process, (1, 1))
    cache = ProgramCache(tmp_path, max_bytes=4000)
    for number in range(8):
        cache.keep(key_of(str(number)), bytes(900))
    assert all((tmp_path / name).stat().st_size == 100 for name in names)
    assert not left_by_a_killed_process.exists()
    assert len(list(tmp_path.glob("*.bin"))) <= 4 + len(names)


def test_what_is_no_file_of_the_user_is_not_read(tmp_path: Path) -> None:
    cache = ProgramCache(tmp_path / "cache")
    outside = tmp_path / "outside"
    cache.keep(KEY, b"program")
    (path,) = (tmp_path / "cache").glob("*.bin")
    outside.write_bytes(path.read_bytes())
    plants: tuple[Callable[[Path], object], ...] = (
        lambda one: os.mkfifo(one),
        lambda one: one.symlink_to(outside),
        lambda one: (one.write_bytes(outside.read_bytes()), one.chmod(0o666)),
    )
    for plant in plants:
        path.unlink()
        plant(path)
        assert cache.find(KEY) is None
        cache.keep(KEY, b"program")
        assert cache.find(KEY) == b"program"
    path.unlink()
    path.mkdir()
    cache.keep(KEY, b"program")
    assert cache.find(KEY) is None


def test_where_it_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UHAL_OPENCL_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert ProgramCache.of_user("opencl").folder == tmp_path / "xdg" / "uhal" / "opencl"
    monkeypatch.setenv("UHAL_OPENCL_CACHE", str(tmp_path / "mine"))
    assert ProgramCache.of_user("opencl").folder == tmp_path / "mine" / "uhal" / "opencl"
    monkeypatch.setenv("UHAL_OPENCL_CACHE", "off")
    assert ProgramCache.of_user("opencl").folder is None
    assert MAX_BYTES >= 100 << 20


def test_one_process_builds_what_several_ask_for(tmp_path: Path) -> None:
    """Each process looks for the program and builds it if missing; a lock lets only one build."""
    program = f"""
import sys, time
from pathlib import Path
sys.path.insert(0, {str(ROOT)!r})
from uhal.images.program_cache import ProgramCache
cache = ProgramCache(Path({str(tmp_path)!r}))
with cache.held({KEY!r}):
    if cache.find({KEY!r}) is None:
        time.sleep(0.2)
        cache.keep({KEY!r}, b"program")
        print("built")
"""
    children = [
        subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    said = [child.communicate(timeout=60)[0] for child in children]
    assert sorted(said) == ["", "", "", "built\n"]


def test_threads_share_it(tmp_path: Path) -> None:
    cache = ProgramCache(tmp_path)
    built = []

    def ask() -> None:
        with cache.held(KEY):
            if cache.find(KEY) is None:
                built.append(1)
                cache.keep(KEY, b"program")

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert built == [1]

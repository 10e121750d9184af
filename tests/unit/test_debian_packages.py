"""Debian packages that tests need: pinned, unpacked once, and reported when missing."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import debian_packages
from tests.debian_packages import Pin, read_pins, unpack

PINS = [
    Pin("a-set", "one", "stable", "1.0", "0" * 64, "pool/one_1.0_amd64.deb"),
    Pin("a-set", "one", "unstable", "2.0", "1" * 64, "pool/one_2.0_amd64.deb"),
    Pin("a-set", "two", "stable", "1.0", "2" * 64, "pool/two_1.0_amd64.deb"),
]
GONE = "404  Not Found [IP: 192.0.2.1 80]"
OFFLINE = "Could not resolve 'archive.invalid'"
MISMATCH = "Hash Sum mismatch"


@pytest.fixture
def archive(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, str]], list[list[str]]]:
    """Makes files of an archive unavailable, with a reason for each; notes requests."""
    asked: list[list[str]] = []

    def pretend(refusals: dict[str, str]) -> list[list[str]]:
        def said(*command: str) -> tuple[int, str]:
            if "download-file" in command:
                words = command[command.index("download-file") + 1 :]
                triples = list(zip(words[::3], words[1::3], words[2::3], strict=True))
                asked.append([Path(address).name for address, _, _ in triples])
                lines = []
                for address, target, digest in triples:
                    assert digest.startswith("SHA256:")
                    refusal = refusals.get(Path(address).name)
                    if refusal is None:
                        Path(target).write_text(address)
                    else:
                        lines += [f"Err:1 {address}", f"  {refusal}"]
                return 100 if lines else 0, "\n".join(lines)
            if "-x" in command:
                Path(command[-1], Path(command[-2]).name).touch()
            return 0, ""

        monkeypatch.setattr(debian_packages, "_said", said)
        monkeypatch.setattr(debian_packages, "read_pins", lambda: PINS)
        monkeypatch.setattr(debian_packages, "_check_tools", lambda wanted: None)
        monkeypatch.setattr(debian_packages, "_archives", lambda: ["http://archive.invalid"])
        return asked

    monkeypatch.delenv("CI", raising=False)
    return pretend


def test_every_row_is_whole() -> None:
    pins = read_pins()
    sets = {"rocr-5.2", "rocr-7.2", "libc-2.41", "opencl", "mesa-22", "pocl-3", "pocl-7"}
    assert {pin.set for pin in pins} == sets
    for pin in pins:
        assert len(pin.sha256) == 64 and int(pin.sha256, 16) >= 0
        assert pin.file.startswith("pool/main/") and pin.file.endswith(("_amd64.deb", "_all.deb"))
        assert Path(pin.file).name.split("_")[:2] == [pin.package, pin.version.split(":")[-1]]


def test_a_set_is_downloaded_once(
    archive: Callable[[dict[str, str]], list[list[str]]], tmp_path: Path
) -> None:
    asked = archive({})
    roots: list[Path] = []
    threads = [
        threading.Thread(target=lambda: roots.append(unpack(tmp_path, "a-set"))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(roots)) == 1 and len(roots) == 4
    assert sorted(path.name for path in roots[0].iterdir()) == [
        "one_1.0_amd64.deb",
        "two_1.0_amd64.deb",
    ]
    assert [names for names in asked if names] == [["one_1.0_amd64.deb", "two_1.0_amd64.deb"]]


def test_another_version_takes_the_place_of_one_that_is_gone(
    archive: Callable[[dict[str, str]], list[list[str]]], tmp_path: Path
) -> None:
    archive({"one_1.0_amd64.deb": GONE})
    root = unpack(tmp_path, "a-set")
    assert sorted(path.name for path in root.iterdir()) == [
        "one_2.0_amd64.deb",
        "two_1.0_amd64.deb",
    ]


@pytest.mark.parametrize("reason", [GONE, MISMATCH])
@pytest.mark.parametrize("ci", ["", "true"])
def test_what_debian_replaced_fails_and_says_what_to_do(
    archive: Callable[[dict[str, str]], list[list[str]]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    reason: str,
    ci: str,
) -> None:
    archive({"two_1.0_amd64.deb": reason})
    monkeypatch.setenv("CI", ci)
    with pytest.raises(pytest.fail.Exception) as failed:
        unpack(tmp_path, "a-set")
    assert str(failed.value) == (
        "two cannot be had as debian_packages.tsv has it:\n"
        f"  http://archive.invalid/pool/two_1.0_amd64.deb: {reason}\n"
        "If Debian replaced the version, bring the list up to date: python -m tests.debian_packages"
    )
    # A failed download leaves no incomplete folder.
    assert [path.name for path in tmp_path.iterdir()] == ["a-set.lock"]


def test_without_a_network_only_ci_fails(
    archive: Callable[[dict[str, str]], list[list[str]]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = archive({Path(pin.file).name: OFFLINE for pin in PINS})
    for _ in range(2):
        with pytest.raises(pytest.skip.Exception, match="no network to download one, two from:"):
            unpack(tmp_path, "a-set")
    # Each row was asked for once: a second test does not wait for the network again.
    assert sorted(name for names in asked for name in names) == sorted(
        Path(pin.file).name for pin in PINS
    )
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="in CI this must be there: no network"):
        unpack(tmp_path, "a-set")


def test_without_apt_only_ci_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda tool: None)
    monkeypatch.setattr(debian_packages.platform, "machine", lambda: "x86_64")
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="there is no /usr/lib/apt/apt-helper here"):
        unpack(tmp_path, "rocr-7.2")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(
        pytest.fail.Exception, match=r"in CI this must be there: rocr-7.2 is packages"
    ):
        unpack(tmp_path, "rocr-7.2")

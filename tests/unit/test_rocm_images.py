"""The choice of a code object for a device, out of single files and bundles."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from rocm_backend.images import select
from rocm_backend.targets import DeviceTarget
from uhal.errors import InvalidImageError
from uhal.images.amd_target import TargetId
from uhal.images.offload_bundle import MAGIC

DATA = Path(__file__).parents[1] / "data" / "rocm"
ID = "hipv4-amdgcn-amd-amdhsa--"


def device(*isas: str) -> DeviceTarget:
    return DeviceTarget("rocm:0", tuple(map(TargetId.parse, isas)))


def sample(name: str) -> bytes:
    return (DATA / name).read_bytes()


def bundle(*entries: tuple[str, bytes]) -> bytes:
    table = MAGIC + struct.pack("<Q", len(entries))
    start = len(table) + sum(24 + len(name) for name, _ in entries)
    body = b""
    for name, payload in entries:
        table += struct.pack("<QQQ", start + len(body), len(payload), len(name)) + name.encode()
        body += payload
    return table + body


@pytest.mark.parametrize(
    ("isas", "expected", "reason"),
    [
        (["gfx90a:sramecc+:xnack-"], "gfx90a:sramecc+:xnack-", "made for exactly this device"),
        (["gfx1100"], "gfx1100", "made for exactly this device"),
        (["gfx1100", "gfx11-generic"], "gfx1100", "made for exactly this device"),
        (["gfx1151", "gfx11-generic"], "gfx11-generic", "gfx1151 runs such code too"),
    ],
)
def test_what_is_chosen_of_a_bundle(isas: list[str], expected: str, reason: str) -> None:
    found = select(sample("plain.hipfb"), device(*isas))
    assert found.chosen.description == f"code object for {expected}"
    assert found.chosen.reason == reason
    assert str(found.contents.target) == expected
    assert list(found.contents.signatures) == ["saxpy", "mixed", "nothing", "spills"]


def test_when_nothing_fits_every_candidate_is_listed() -> None:
    with pytest.raises(InvalidImageError) as caught:
        select(sample("plain.hipfb"), device("gfx90a:sramecc+:xnack+"))
    assert str(caught.value).splitlines() == [
        "no image fits rocm:0 (gfx90a:sramecc+:xnack+):",
        "  code object for gfx90a:sramecc+:xnack-: "
        "made for xnack-, and the device runs with xnack+",
        "  code object for gfx1100: made for gfx1100, and the device is gfx90a",
        "  code object for gfx11-generic: "
        "code for a whole family, which this runtime does not load: a newer ROCm may",
    ]


def test_settled_features_come_before_open_ones() -> None:
    open_, pinned = sample("gfx90a.hsaco"), sample("gfx90a_pinned.hsaco")
    both = bundle((f"{ID}gfx90a", open_), (f"{ID}gfx90a:sramecc+:xnack-", pinned))
    assert select(both, device("gfx90a:sramecc+:xnack-")).payload == pinned
    assert select(both, device("gfx90a:sramecc-:xnack-")).payload == open_


def test_a_code_object_by_itself() -> None:
    found = select(sample("gfx90a.hsaco"), device("gfx90a:sramecc+:xnack-"))
    assert found.chosen.description == "code object for gfx90a"
    with pytest.raises(InvalidImageError, match="made for gfx90a, and the device is gfx942"):
        select(sample("gfx90a.hsaco"), device("gfx942:sramecc+:xnack-"))
    with pytest.raises(InvalidImageError, match="lists no code"):
        select(sample("gfx90a.hsaco"), device())


def test_entries_for_other_machines_are_passed_over() -> None:
    image = bundle(
        ("host-x86_64-unknown-linux-gnu-", b""),
        ("hip-spirv64-amd-amdhsa--amdgcnspirv", b"\x03\x02\x23\x07"),
        (f"{ID}gfx1100", sample("gfx1100.hsaco")),
    )
    found = select(image, device("gfx1100"))
    assert [one.reason for one in found.chosen.candidates] == [
        "not machine code of an AMD device",
        "made for exactly this device",
    ]


@pytest.mark.parametrize("image", [b"", b"//uhal.sig", b"\x7fELF" + bytes(60)])
def test_other_files_are_refused(image: bytes) -> None:
    with pytest.raises(InvalidImageError, match="no image for AMD devices"):
        select(image, device("gfx90a"))


def test_a_bundle_that_names_its_code_wrongly() -> None:
    image = bundle((f"{ID}gfx1100", sample("gfx90a.hsaco")))
    with pytest.raises(InvalidImageError, match="of code for gfx90a"):
        select(image, device("gfx1100"))
    with pytest.raises(InvalidImageError, match="no image in it"):
        select(bundle(), device("gfx1100"))

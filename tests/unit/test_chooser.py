"""The order of images that fit, and NVIDIA's rules for fitting."""

from __future__ import annotations

from pathlib import Path

import pytest

from cuda_backend.images import Selection, select
from cuda_backend.targets import (
    PTX_OF_CUDA,
    DeviceTarget,
    Target,
    judge_cubin,
    judge_ptx,
    newest_ptx,
)
from uhal.errors import InvalidImageError, NotSupportedError
from uhal.images import zstd
from uhal.images.chooser import Fit, Judgement, choose

DATA = Path(__file__).parents[1] / "data" / "cuda"


def device(capability: str = "8.6", driver: str = "13.0") -> DeviceTarget:
    first, second = (tuple(int(part) for part in text.split(".")) for text in (capability, driver))
    return DeviceTarget("cuda:0", (first[0], first[1]), (second[0], second[1]))


# -- order -----------------------------------------------------------------------------------------


def test_exact_before_portable_before_compatible() -> None:
    refused = Judgement("refused", Fit.REFUSED, "it is too new")
    compatible = Judgement("compatible", Fit.COMPATIBLE, "runs", (9,))
    old = Judgement("old", Fit.PORTABLE, "compiles", (7, 5))
    new = Judgement("new", Fit.PORTABLE, "compiles", (8, 0))
    exact = Judgement("exact", Fit.EXACT, "fits", (1,))
    assert choose([refused, compatible, old, new, exact], "d")[0] == 4
    index, chosen = choose([refused, compatible, old, new], "d")
    assert index == 3
    assert str(chosen) == "new: compiles"
    assert [(one.description, one.accepted) for one in chosen.candidates] == [
        ("refused", False),
        ("compatible", False),
        ("old", False),
        ("new", True),
    ]
    assert chosen.candidates[0].reason == "it is too new"
    assert all(one.reason for one in chosen.candidates)
    assert choose([refused, compatible], "d")[0] == 1


def test_the_first_of_equals() -> None:
    same = [Judgement(name, Fit.EXACT, "fits") for name in "ab"]
    assert choose(same, "d")[0] == 0


def test_none_fits() -> None:
    judged = [Judgement("one", Fit.REFUSED, "too new"), Judgement("two", Fit.REFUSED, "too old")]
    with pytest.raises(InvalidImageError) as raised:
        choose(judged, "cuda:0")
    assert str(raised.value) == "no image fits cuda:0:\n  one: too new\n  two: too old"
    with pytest.raises(InvalidImageError, match="no image in it for cuda:0"):
        choose([], "cuda:0")


# -- NVIDIA's rules --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "capability", "suffix"),
    [("sm_75", (7, 5), ""), ("sm_90a", (9, 0), "a"), ("compute_103f", (10, 3), "f")],
)
def test_target_names(text: str, capability: tuple[int, int], suffix: str) -> None:
    assert Target.parse(text) == Target(capability, suffix)


@pytest.mark.parametrize("text", ["", "sm_", "sm_7", "gfx90a", "sm_90b", "sm_90a ", "sm_12345"])
def test_other_names(text: str) -> None:
    with pytest.raises(InvalidImageError):
        Target.parse(text)


def test_the_table_of_ptx_versions_rises() -> None:
    assert list(PTX_OF_CUDA) == sorted(PTX_OF_CUDA)
    assert newest_ptx((8, 0)) is None
    assert newest_ptx((11, 4)) == (7, 4)
    assert newest_ptx((12, 6)) == (8, 5)
    assert newest_ptx((99, 0)) == PTX_OF_CUDA[-1][1]


@pytest.mark.parametrize(
    ("version", "target", "capability", "driver", "fits"),
    [
        ((7, 4), "sm_75", "8.6", "11.4", True),
        ((7, 5), "sm_75", "8.6", "11.4", False),
        ((8, 5), "sm_75", "7.5", "12.6", True),
        ((8, 6), "sm_75", "7.5", "12.6", False),
        ((9, 9), "sm_75", "7.5", "13.1", False),
        ((9, 9), "sm_75", "7.5", "14.0", True),
        ((7, 0), "sm_80", "7.5", "13.0", False),
        ((7, 0), "sm_80", "12.1", "13.0", True),
        ((8, 0), "sm_90a", "9.0", "13.0", True),
        ((8, 0), "sm_90a", "10.0", "13.0", False),
        ((8, 8), "sm_100f", "10.0", "13.0", True),
        ((8, 8), "sm_100f", "10.3", "13.0", True),
        ((8, 8), "sm_103f", "10.0", "13.0", False),
        ((8, 8), "sm_100f", "11.0", "13.0", False),
        ((8, 8), "sm_100f", "12.0", "13.0", False),
        ((8, 8), "sm_120f", "12.1", "13.0", True),
    ],
)
def test_ptx(
    version: tuple[int, int], target: str, capability: str, driver: str, fits: bool
) -> None:
    judgement = judge_ptx("PTX", version, target, device(capability, driver))
    assert judgement.fit is (Fit.PORTABLE if fits else Fit.REFUSED)
    assert judgement.reason


def test_a_refusal_of_ptx_names_both_versions() -> None:
    judgement = judge_ptx("PTX", (8, 6), "sm_75", device("8.6", "12.4"))
    assert judgement.reason == (
        "PTX 8.6 needs a driver for CUDA 12.7 or later; this one is for CUDA 12.4 and takes PTX up "
        "to 8.4"
    )


@pytest.mark.parametrize(
    ("target", "toolkit", "capability", "driver", "fit"),
    [
        ("sm_86", (12, 4), "8.6", "12.4", Fit.EXACT),
        ("sm_86", (12, 9), "8.6", "12.0", Fit.EXACT),
        ("sm_86", (13, 0), "8.6", "12.9", Fit.REFUSED),
        ("sm_86", None, "8.6", "11.4", Fit.EXACT),
        ("sm_80", (12, 4), "8.6", "12.4", Fit.COMPATIBLE),
        ("sm_89", (12, 4), "8.6", "12.4", Fit.REFUSED),
        ("sm_80", (12, 4), "9.0", "12.4", Fit.REFUSED),
        ("sm_80", (12, 4), "8.7", "12.4", Fit.REFUSED),
        ("sm_87", (12, 4), "8.7", "12.4", Fit.EXACT),
        ("sm_87", (12, 4), "8.9", "12.4", Fit.REFUSED),
        ("sm_88", (13, 0), "8.9", "13.0", Fit.REFUSED),
        ("sm_86", (13, 0), "8.8", "13.0", Fit.REFUSED),
        ("sm_87", (13, 0), "8.8", "13.0", Fit.REFUSED),
        ("sm_50", (12, 4), "5.3", "12.4", Fit.REFUSED),
        ("sm_61", (12, 4), "6.2", "12.4", Fit.REFUSED),
        ("sm_62", (12, 4), "6.2", "12.4", Fit.EXACT),
        ("sm_70", (12, 4), "7.2", "12.4", Fit.REFUSED),
        ("sm_72", (12, 4), "7.5", "12.4", Fit.REFUSED),
        ("sm_70", (12, 4), "7.5", "12.4", Fit.COMPATIBLE),
        ("sm_100f", (12, 9), "10.1", "12.9", Fit.REFUSED),
        ("sm_101f", (12, 9), "10.3", "12.9", Fit.REFUSED),
        ("sm_110", (13, 0), "11.0", "13.0", Fit.EXACT),
        ("sm_90a", (12, 4), "9.0", "12.4", Fit.EXACT),
        ("sm_100a", (13, 0), "10.3", "13.0", Fit.REFUSED),
        ("sm_100f", (13, 0), "10.3", "13.0", Fit.COMPATIBLE),
        ("sm_100", (13, 0), "10.3", "13.0", Fit.COMPATIBLE),
    ],
)
def test_cubins(
    target: str, toolkit: tuple[int, int] | None, capability: str, driver: str, fit: Fit
) -> None:
    assert judge_cubin("cubin", target, toolkit, device(capability, driver)).fit is fit


# -- whole images ----------------------------------------------------------------------------------


def selected(name: str, capability: str, driver: str = "13.0") -> Selection:
    return select((DATA / name).read_bytes(), device(capability, driver))


def test_a_fatbin_on_the_device_of_its_cubin() -> None:
    found = selected("mode_none.fatbin", "7.5")
    assert found.chosen.description == "cubin for sm_75"
    assert len(found.chosen.candidates) == 3
    # The cubin does not say which parameters are pointers, but the PTX beside it does.
    assert found.signatures["saxpy"].declaration == "integer[8], f32, ptr, ptr"
    assert found.payload[:4] == b"\x7fELF"


def test_a_fatbin_on_another_device() -> None:
    found = selected("mode_speed.fatbin", "8.6")
    assert str(found.chosen) == (
        "PTX 9.0 for sm_75: the driver compiles it for compute capability 8.6"
    )
    assert found.payload.lstrip().startswith(b".version")


def test_a_fatbin_for_newer_drivers_lists_everything() -> None:
    with pytest.raises(InvalidImageError) as raised:
        selected("mode_none.fatbin", "7.5", "12.4")
    message = str(raised.value)
    assert message.startswith(
        "no image fits cuda:0 (compute capability 7.5, driver for CUDA 12.4):"
    )
    assert message.count("\n") == 3
    assert "a binary needs a driver of its own major version" in message


def test_what_cannot_be_decompressed_goes_to_the_driver_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(data: bytes, size: int, otherwise: str) -> bytes:
        raise NotSupportedError("no zstd")

    monkeypatch.setattr(zstd, "decompress", refuse)
    found = selected("mode_size.fatbin", "8.6")
    assert found.chosen.description == "PTX 9.0 for sm_75"
    assert found.payload == (DATA / "mode_size.fatbin").read_bytes()
    assert found.signatures == {}


def test_single_images() -> None:
    assert selected("sm_75.ptx", "12.0").chosen.description == "PTX 9.0 for sm_75"
    assert selected("old_sm_80.cubin", "8.6", "12.0").chosen.description == "cubin for sm_80"
    with pytest.raises(InvalidImageError, match="relocatable"):
        selected("relocatable.cubin", "8.0")
    with pytest.raises(InvalidImageError, match="expected PTX, a cubin or a fatbin"):
        select(b"MZ nothing", device())
    with pytest.raises(InvalidImageError, match="expected PTX, a cubin or a fatbin"):
        select(b"", device())
    with pytest.raises(InvalidImageError, match="64-bit code only"):
        select(b".version 7.0 .target sm_75 .address_size 32", device())

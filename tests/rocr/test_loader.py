"""Symbol lookup and header checks of AMD's loader, and the same in the simulated loader."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping

import pytest

from rocm_backend.images import select
from rocm_backend.targets import DeviceTarget
from tests import hsaco_writer
from tests.children import ROOT, check_child
from tests.hsaco_writer import Kernel
from tests.requirements import missing
from tests.rocr import loader
from tests.rocr.machine import Machine
from tests.simulated.hsa import LIBRARY
from uhal.errors import InvalidImageError
from uhal.images import elf
from uhal.images.amd_target import TargetId
from uhal.images.hsaco import read_hsaco

KERNELS = (Kernel("first", kernarg=8), Kernel("second"))
FOUND, MISSING = "found", "INVALID_SYMBOL_NAME"
LOCAL_OBJECT, WEAK_OBJECT, GLOBAL_FUNCTION, GLOBAL_NOTYPE = 0x01, 0x21, 0x12, 0x10
HIDDEN = 2


def image(**how: object) -> bytes:
    return hsaco_writer.write(KERNELS, target="gfx1100", variables={"table": 16}, **how)  # type: ignore[arg-type]


def with_symbol(name: str, **changes: int) -> bytes:
    """Return the image with changed fields of a symbol in `.symtab`."""
    changed = bytearray(image())
    file = elf.Elf(bytes(changed))
    (table,) = (section for section in file.sections if section.name == ".symtab")
    index = [symbol.name for symbol in file.full_symbols].index(name)
    layout = struct.Struct("<IBBHQQ")
    at = table.offset + layout.size * index
    fields = dict(
        zip(
            ("name", "info", "other", "section", "value", "size"),
            layout.unpack_from(changed, at),
            strict=True,
        )
    )
    layout.pack_into(changed, at, *{**fields, **changes}.values())
    return bytes(changed)


def with_byte(offset: int, value: int) -> bytes:
    changed = bytearray(image())
    changed[offset] = value
    return bytes(changed)


# Answers for the kernel `first`, its name without the ending, and the variable `table`; or the
# error of the load.
CASES: Mapping[str, tuple[bytes, list[str]]] = {
    "as linked": (image(), [FOUND, MISSING, FOUND]),
    "stripped": (image(stripped=True), [MISSING, MISSING, MISSING]),
    "a local kernel": (with_symbol("first.kd", info=LOCAL_OBJECT), [MISSING, MISSING, FOUND]),
    "a weak kernel": (with_symbol("first.kd", info=WEAK_OBJECT), [FOUND, MISSING, FOUND]),
    "a global kernel that is hidden": (
        with_symbol("first.kd", other=HIDDEN),
        [FOUND, MISSING, FOUND],
    ),
    "a function": (with_symbol("first.kd", info=GLOBAL_FUNCTION), [MISSING, MISSING, FOUND]),
    "without a type": (with_symbol("first.kd", info=GLOBAL_NOTYPE), [MISSING, MISSING, FOUND]),
    "a local variable": (with_symbol("table", info=LOCAL_OBJECT), [FOUND, MISSING, MISSING]),
    "version 5": (image(version=5), [FOUND, MISSING, FOUND]),
    "version 6": (image(version=6), [FOUND, MISSING, FOUND]),
    "a version that is not known": (with_byte(8, 5), ["INVALID_CODE_OBJECT"]),
    "another system": (with_byte(7, 0), ["INVALID_CODE_OBJECT"]),
    "another machine": (with_byte(18, 62), ["INVALID_CODE_OBJECT"]),
    "another processor": (hsaco_writer.write(KERNELS, target="gfx90a"), ["INCOMPATIBLE_ARGUMENTS"]),
    "a processor that is not known": (image(flags=0xEE), ["INVALID_CODE_OBJECT"]),
    "a feature the processor has not": (image(flags=0x341), ["INVALID_ISA_NAME"]),
    "a family": (
        hsaco_writer.write(KERNELS, target="gfx11-generic", version=6, flags=0x01000054),
        [FOUND, MISSING, MISSING],
    ),
    "two of a name": (
        hsaco_writer.write([KERNELS[0]] * 2, target="gfx1100"),
        ["VARIABLE_ALREADY_DEFINED"],
    ),
}


@pytest.fixture(scope="module")
def amds(machine_with: Callable[[str], Machine]) -> Mapping[str, list[str]]:
    images = [one.hex() for one, _ in CASES.values()]
    told = machine_with("gfx1100").call(loader.answers, images)
    return dict(zip(CASES, told, strict=True))


@pytest.mark.parametrize("case", CASES)
def test_what_amds_loader_answers(amds: Mapping[str, list[str]], case: str) -> None:
    assert amds[case] == CASES[case][1]


def print_answers(images: list[str], library: str) -> None:
    print(json.dumps(loader.answers(images, library)))


def test_the_simulated_loader_answers_the_same() -> None:
    if not LIBRARY.exists():
        missing("the simulated HSA runtime is not built: make simulators")
    images = [one.hex() for one, _ in CASES.values()]
    environment = {
        "UHAL_SIM_ROCM_PROFILE": "gfx1100",
        "UHAL_SIM_ROCM_GENERIC": "1",
        "UHAL_SIM_KERNELS": str(ROOT / "tests"),
    }
    told = json.loads(check_child(print_answers, images, str(LIBRARY), environment=environment))
    # The simulated loader finds no variable without a host build of the module.
    kernels = [answers[:2] for _, answers in CASES.values()]
    assert dict(zip(CASES, (one[:2] for one in told), strict=True)) == dict(
        zip(CASES, kernels, strict=True)
    )


def test_our_reader_knows_which_kernels_are_found() -> None:
    for case, (contents, answers) in CASES.items():
        if len(answers) == 3:
            (first, second) = read_hsaco(contents).kernels
            assert first.exported == (answers[0] == FOUND), case
            assert second.exported == (case != "stripped"), case


@pytest.mark.parametrize(
    ("damaged", "problem"),
    [
        (with_symbol("first.kd", section=0, value=0), "'first.kd' is not defined in it"),
        (with_symbol("table", section=0xFFF1), "'table' is not defined in it"),
        (with_symbol("first.kd", section=99), "'first.kd' is not defined in it"),
        (with_symbol("table", value=0x900000), "loads nothing at 0x900000, where 'table' is"),
        (with_symbol("first.kd", value=0x900000), "loads nothing at 0x900000, where 'first.kd'"),
        (image()[:500], "truncated"),
    ],
)
def test_what_would_end_the_process_does_not_reach_the_loader(damaged: bytes, problem: str) -> None:
    """ROCr 7.2.4 crashes on each of these."""
    with pytest.raises(InvalidImageError, match=problem):
        read_hsaco(damaged)


def test_a_stripped_object_is_refused_in_words() -> None:
    device = DeviceTarget("rocm:0", (TargetId("gfx1100"),))
    with pytest.raises(InvalidImageError) as refused:
        select(image(stripped=True), device)
    assert str(refused.value) == (
        "this code object for gfx1100 has no symbols in .symtab, where AMD's runtime looks for "
        "its 2 kernels: it was linked with --strip-all. Link it without (--strip-debug and "
        "--discard-all keep the symbols), or set LOADER_USE_DYNSYM=1"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOADER_USE_DYNSYM", "1")
        assert len(select(image(stripped=True), device).contents.kernels) == 2
        patch.setenv("LOADER_USE_DYNSYM", "0")
        with pytest.raises(InvalidImageError, match=r"no symbols in \.symtab"):
            select(image(stripped=True), device)

"""The code object reader on clang's files of versions 4, 5 and 6, and on damaged files."""

from __future__ import annotations

import contextlib
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.sampling import rounds
from tests.unit.test_msgpack import pack
from uhal.errors import InvalidImageError
from uhal.images import elf, hsaco
from uhal.images.amd_target import PROCESSORS, TargetId
from uhal.images.hsaco import HsacoKernel, is_hsaco, read_hsaco
from uhal.images.msgpack import unpack
from uhal.signature import Signature, merge

DATA = Path(__file__).parents[1] / "data" / "rocm"
FLAGS = 48
ABI_VERSION = 8
BY_HIP = ["gfx90a", "gfx90a_pinned", "gfx1100", "gfx11_generic"]


def sample(name: str) -> bytes:
    return (DATA / f"{name}.hsaco").read_bytes()


def kernels(image: bytes) -> dict[str, HsacoKernel]:
    return {kernel.name: kernel for kernel in read_hsaco(image).kernels}


def with_metadata(image: bytes, change: Callable[[dict[str, Any]], None]) -> bytes:
    """The file with its metadata changed, in place; it may not become longer."""
    (note,) = (one for one in elf.Elf(image).notes if one.type == 32)
    facts: Any = unpack(note.description)
    change(facts)
    packed = pack(facts)
    assert len(packed) <= len(note.description), "the change does not fit"
    at = image.index(note.description)
    size_at = at - 8 - 8
    assert struct.unpack_from("<III", image, size_at - 4) == (7, len(note.description), 32)
    changed = bytearray(image)
    changed[at : at + len(packed)] = packed
    struct.pack_into("<I", changed, size_at, len(packed))
    # The note segment and section keep their old size: clear the rest of the old notes.
    changed[at + len(packed) : at + len(note.description)] = bytes(
        len(note.description) - len(packed)
    )
    return bytes(changed)


@pytest.mark.parametrize(
    ("name", "target", "version", "generic", "wavefront"),
    [
        ("gfx90a", "gfx90a", 4, 0, 64),
        ("gfx90a_pinned", "gfx90a:sramecc+:xnack-", 5, 0, 64),
        ("gfx1100", "gfx1100", 5, 0, 32),
        ("gfx11_generic", "gfx11-generic", 6, 1, 32),
    ],
)
def test_what_clang_writes(
    name: str, target: str, version: int, generic: int, wavefront: int
) -> None:
    assert is_hsaco(sample(name))
    image = read_hsaco(sample(name))
    assert (str(image.target), image.version, image.generic_version) == (target, version, generic)
    assert list(image.signatures) == ["saxpy", "mixed", "nothing", "spills"]
    found = kernels(sample(name))
    assert {kernel.wavefront for kernel in found.values()} == {wavefront}
    assert all(kernel.exported and not kernel.foreign for kernel in found.values())
    assert found["saxpy"].symbol == "saxpy.kd"
    assert found["saxpy"].signature.declaration == "unknown[8], unknown[4], ptr, ptr"
    mixed = found["mixed"]
    assert [one.offset for one in mixed.signature] == [0, 8, 16, 40, 43, 44, 46, 48, 56, 64]
    assert [one.size for one in mixed.signature] == [8, 8, 24, 3, 1, 2, 2, 8, 2, 8]
    assert mixed.signature[2].kind == mixed.signature[3].kind == "aggregate"
    assert mixed.group_bytes == 32 * 33 * 4
    assert mixed.max_block_threads == 256
    assert found["saxpy"].max_block_threads == 1024
    assert found["spills"].private_bytes >= 256
    assert found["nothing"].kernarg_bytes == 0
    assert len(found["nothing"].signature) == 0


def test_hidden_arguments_of_version_5() -> None:
    saxpy = kernels(sample("gfx1100"))["saxpy"]
    assert saxpy.kernarg_bytes == 32 + 256
    fields = {one.kind: (one.offset - 32, one.size) for one in saxpy.hidden}
    assert fields["hidden_block_count_z"] == (8, 4)
    assert fields["hidden_group_size_x"] == (12, 2)
    assert fields["hidden_remainder_z"] == (22, 2)
    assert fields["hidden_global_offset_y"] == (48, 8)
    assert fields["hidden_grid_dims"] == (64, 2)
    # In version 4 the size of a work-group is read from the packet.
    before = kernels(sample("gfx90a"))["saxpy"]
    assert before.hidden == () and before.kernarg_bytes == 32


def test_names_and_types_where_the_file_has_them() -> None:
    found = kernels(sample("named"))
    assert found["named"].required_block == (64, 2, 1)
    assert found["named"].kernarg_alignment == 16
    assert [one.type_text for one in found["named"].signature] == [
        *("u32", "f32", "const f32*", "f32*", "bytes[16]", "const i32*")
    ]
    assert found["foreign"].foreign == ("dynamic_shared_pointer",)


def test_a_declaration_adds_what_the_file_leaves_out() -> None:
    told = kernels(sample("gfx90a"))["saxpy"].signature
    declared = Signature.parse("u64 n, f32 a, const f32* x, f32* y", entry="saxpy")
    both = merge(told, declared)
    assert both is not None and both.declaration == declared.declaration
    assert both[1].source == "code object, kind, name, dtype from declaration"


def test_offsets_are_the_files() -> None:
    def exchange(facts: dict[str, Any]) -> None:
        arguments = facts["amdhsa.kernels"][0][".args"]
        arguments[2][".offset"], arguments[3][".offset"] = 24, 16

    saxpy = kernels(with_metadata(sample("gfx90a"), exchange))["saxpy"]
    assert [one.offset for one in saxpy.signature] == [0, 8, 24, 16]


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        (".kernarg_segment_size", 40, "descriptor of 'saxpy'"),
        (".group_segment_fixed_size", 4, "descriptor of 'saxpy'"),
        (".kernarg_segment_size", 24, "cannot be: 8 bytes at 24 of 24"),
        (".kernarg_segment_size", -1, "no number"),
        (".kernarg_segment_align", 3, "impossible"),
        (".kernarg_segment_align", 0, "impossible"),
        (".wavefront_size", 16, "impossible"),
        (".wavefront_size", True, "no number"),
        (".name", "", "no text"),
        (".name", "mixed", "twice"),
        (".symbol", 7, "no text"),
        (".args", 7, "no list"),
    ],
)
def test_facts_that_cannot_be(key: str, value: object, problem: str) -> None:
    def change(facts: dict[str, Any]) -> None:
        facts["amdhsa.kernels"][0][key] = value

    with pytest.raises(InvalidImageError, match=problem):
        read_hsaco(with_metadata(sample("gfx90a"), change))


@pytest.mark.parametrize(
    ("argument", "key", "value", "problem"),
    [
        (3, ".offset", 16, "cannot be: 8 bytes at 16"),
        (3, ".offset", 20, "cannot be"),
        (3, ".offset", 25, "cannot be"),
        (0, ".size", 0, "cannot be: 0 bytes"),
        (2, ".size", 4, "a pointer of 4 bytes"),
        (1, ".value_kind", 4, "no text"),
    ],
)
def test_arguments_that_cannot_be(argument: int, key: str, value: object, problem: str) -> None:
    def change(facts: dict[str, Any]) -> None:
        facts["amdhsa.kernels"][0][".args"][argument][key] = value

    with pytest.raises(InvalidImageError, match=problem):
        read_hsaco(with_metadata(sample("gfx90a"), change))


def test_a_hidden_descriptor_is_told() -> None:
    def rename(facts: dict[str, Any]) -> None:
        facts["amdhsa.kernels"][0][".symbol"] = "other.kd"

    found = kernels(with_metadata(sample("gfx90a"), rename))
    assert [name for name, kernel in found.items() if not kernel.exported] == ["saxpy"]


def test_the_header_and_the_metadata_agree_on_the_target() -> None:
    image = bytearray(sample("gfx90a"))
    flags = struct.unpack_from("<I", image, FLAGS)[0]
    struct.pack_into("<I", image, FLAGS, flags & ~0xFF | 0x4C)
    with pytest.raises(InvalidImageError, match="header is for gfx942 and its metadata for gfx90a"):
        read_hsaco(bytes(image))
    struct.pack_into("<I", image, FLAGS, flags & ~0xFF | 0xEE)
    # The metadata decides for a processor that is missing in the table.
    assert str(read_hsaco(bytes(image)).target) == "gfx90a"


@pytest.mark.parametrize(
    ("at", "value", "problem"),
    [
        (ABI_VERSION, 1, "below 4"),
        (ABI_VERSION, 9, "unknown"),
        (7, 0, "another system"),
        (16, 1, "not been linked"),
        (18, 62, "no ELF file for AMD"),
    ],
)
def test_other_files_are_refused(at: int, value: int, problem: str) -> None:
    image = bytearray(sample("gfx90a"))
    image[at] = value
    with pytest.raises(InvalidImageError, match=problem):
        read_hsaco(bytes(image))


# -- targets ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gfx90a", "gfx90a"),
        ("amdgcn-amd-amdhsa--gfx90a:sramecc+:xnack-", "gfx90a:sramecc+:xnack-"),
        ("amdgcn-amd-amdhsa-unknown-gfx906:xnack+", "gfx906:xnack+"),
        ("gfx90a:xnack-:sramecc+", "gfx90a:sramecc+:xnack-"),
        ("amdgcn-amd-amdhsa--gfx9-4-generic:xnack+", "gfx9-4-generic:xnack+"),
    ],
)
def test_target_ids(text: str, expected: str) -> None:
    target = TargetId.parse(text)
    assert str(target) == expected
    assert TargetId.parse(expected) == target
    assert target.generic == ("generic" in text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "gfx",
        "sm_90",
        "gfx90a:",
        "gfx90a:xnack",
        "gfx90a:wave64+",
        "gfx90a\n",
        "gfx90a:xnack+:xnack-",
        "nvptx-nvidia-cuda--gfx90a",
    ],
)
def test_what_is_no_target_id(text: str) -> None:
    with pytest.raises(InvalidImageError, match="is no target id"):
        TargetId.parse(text)


def test_every_processor_has_a_name_that_can_be_read() -> None:
    for number, processor in PROCESSORS.items():
        assert TargetId.parse(processor) == TargetId.from_flags(number)
    assert TargetId.from_flags(0x73F) == TargetId.parse("gfx90a:xnack+")
    assert TargetId.from_flags(0xA3F) == TargetId.parse("gfx90a:sramecc-:xnack-")
    assert TargetId.from_flags(0xEE) is None


@pytest.mark.parametrize(
    ("code", "device", "conflict"),
    [
        ("gfx90a", "gfx90a:sramecc+:xnack-", ""),
        ("gfx90a:xnack-", "gfx90a:sramecc+:xnack-", ""),
        ("gfx1100", "gfx1100", ""),
        ("gfx1100", "gfx1101", "made for gfx1100, and the device is gfx1101"),
        (
            "gfx90a:xnack+",
            "gfx90a:sramecc+:xnack-",
            "made for xnack+, and the device runs with xnack-",
        ),
        ("gfx90a:xnack-", "gfx90a:xnack+", "made for xnack-, and the device runs with xnack+"),
        ("gfx1030:xnack+", "gfx1030", "made for xnack+, and the device does not have xnack"),
    ],
)
def test_which_code_runs_on_which_device(code: str, device: str, conflict: str) -> None:
    assert TargetId.parse(code).conflict(TargetId.parse(device)) == conflict


# -- hostile bytes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*BY_HIP, "named"])
def test_truncations_are_refused(name: str, seed: int) -> None:
    image = sample(name)
    generator = random.Random(seed)
    for length in generator.sample(range(len(image)), rounds(60, 2000)):
        with pytest.raises(InvalidImageError):
            read_hsaco(image[:length])


@pytest.mark.drawn(2)
@pytest.mark.parametrize("name", [*BY_HIP, "named"])
def test_damaged_files_are_refused_or_read(name: str, seed: int) -> None:
    original = sample(name)
    (note,) = (one for one in elf.Elf(original).notes if one.type == 32)
    metadata = range(original.index(note.description), len(original))[: len(note.description)]
    generator = random.Random(seed)
    for _ in range(rounds(200, 20_000)):
        image = bytearray(original)
        for _ in range(generator.randrange(1, 8)):
            where = generator.choice((metadata, range(0x240), range(len(image))))
            image[generator.choice(where)] = generator.randrange(256)
        with contextlib.suppress(InvalidImageError):
            found = read_hsaco(bytes(image))
            for kernel in found.kernels:
                total = kernel.signature.total_bytes
                assert (
                    total is not None and total <= kernel.kernarg_bytes <= hsaco.MAX_KERNARG_BYTES
                )

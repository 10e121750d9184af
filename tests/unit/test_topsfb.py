"""The `.topsfb` reader on files made from the published description, and on damaged ones."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest

from simulators.topsfb.writer import Gcu, bundle, describe, topsfb
from tests.sampling import rounds
from uhal.errors import InvalidImageError, NotSupportedError
from uhal.images import elf
from uhal.images.topsfb import (
    TopsfbEntry,
    is_gcu,
    is_topsfb,
    parse_type,
    read_gcu,
    read_topsfb,
    target_of_id,
    write_topsfb,
)

FLAGS = 48
AFFINE = ["size_t", "tops::half*", "tops::half*", "float", "float"]
KERNELS = {
    "affine_f16": AFFINE,
    "uexp_bf16": ["size_t", "__bf16*", "__bf16*"],
    "fill_f16": ["tops::half*", "int", "tops::half"],
    "fill_bool": ["bool*", "int", "bool"],
    "beq_u32": ["size_t", "size_t", "size_t*", "u_int32_t*", "u_int32_t*", "uint8_t*"],
    "nothing": [],
}


def only(image: bytes) -> TopsfbEntry:
    (entry,) = read_topsfb(image)
    return entry


def declared(kernels: dict[str, list[str]], name: str) -> str:
    signature = read_gcu(Gcu(kernels).elf()).signatures[name]
    assert signature.entry == name
    return signature.declaration


def test_the_kernels_and_their_parameters() -> None:
    image = topsfb(Gcu(KERNELS))
    assert is_topsfb(image)
    assert image[0x20:0x30] == struct.pack("<QQ", 0x86, 0)  # as in all published files
    entry = only(image)
    assert (entry.id, entry.target) == ("tops-dtu-enflame-tops--gcu300", "gcu300")
    assert is_gcu(entry.payload)
    found = read_gcu(entry.payload)
    assert (found.target, found.relocatable) == ("gcu300", False)
    assert [kernel.name for kernel in found.kernels] == list(KERNELS)
    affine = found.signatures["affine_f16"]
    assert affine.declaration == "u64, f16*, f16*, f32, f32"
    assert [one.offset for one in affine] == [0, 8, 16, 24, 28]
    assert {one.source for one in affine} == {"topsfb"}
    assert found.signatures["uexp_bf16"].declaration == "u64, bf16*, bf16*"
    assert found.signatures["fill_f16"].declaration == "f16*, i32, f16"
    assert found.signatures["fill_bool"].declaration == "bool*, i32, bool"
    assert found.signatures["beq_u32"].declaration == "u64, u64, u64*, u32*, u32*, u8*"
    assert len(found.signatures["nothing"]) == 0


@pytest.mark.parametrize(("target", "flags"), [("gcu200", 2), ("gcu210", 3), ("gcu300", 4)])
def test_the_architecture_by_flags_and_note(target: str, flags: int) -> None:
    image = Gcu(KERNELS, target)
    assert elf.Elf(image.elf()).flags == flags
    assert read_gcu(image.elf()).target == target
    assert read_gcu(Gcu(KERNELS, target, processor="").elf()).target == target
    assert read_gcu(Gcu(KERNELS, target, flags=0).elf()).target == target
    assert read_gcu(Gcu(KERNELS, target, processor="", flags=0).elf()).target is None
    with pytest.raises(InvalidImageError, match=f"it is for gcu100 and {target}"):
        read_gcu(Gcu(KERNELS, target, processor="gcu100").elf())


def test_an_architecture_that_came_later() -> None:
    assert read_gcu(Gcu(KERNELS, "gcu400", flags=5).elf()).target == "gcu400"
    assert target_of_id("efgcu-enflame-tops--gcu500") == "gcu500"
    assert target_of_id("hip-amdgcn-amd-amdhsa--gfx90a") is None


def test_several_images_in_one_bundle() -> None:
    entries = read_topsfb(topsfb(Gcu(KERNELS, "gcu200"), Gcu({"one": ["float*"]})))
    assert [entry.target for entry in entries] == ["gcu200", "gcu300"]
    assert [len(read_gcu(entry.payload).kernels) for entry in entries] == [len(KERNELS), 1]


def test_one_image_is_written_as_it_was() -> None:
    image = topsfb(Gcu(KERNELS))
    assert write_topsfb(only(image)) == image


def test_a_kernel_without_metadata_is_listed() -> None:
    found = read_gcu(Gcu(KERNELS, undescribed=["bare"]).elf())
    assert found.kernels[-1].name == "bare"
    assert found.kernels[-1].signature is None
    assert "bare" not in found.signatures


def test_an_object_that_was_not_linked() -> None:
    found = read_gcu(Gcu(KERNELS, flags=0, relocatable=True).elf())
    assert found.relocatable
    assert [kernel.name for kernel in found.kernels] == list(KERNELS)


def test_types_the_reader_does_not_know() -> None:
    kernels = {"k": ["Point*", "float**", "void*", "const float*", "Point"]}
    assert declared(kernels, "k") == "ptr, ptr, ptr, const f32*, bytes[4]"
    args = describe(["size_t", "int16_t"])
    for one in args:
        one["TypeName"] = "Unknown"
    found = read_gcu(Gcu({"k": []}, args={"k": args}).elf())
    # The type name does not tell an integer of 16 bits from an f16.
    assert found.signatures["k"].declaration == "u64, unknown[2]"
    args[0]["ValueKind"] = "Sampler"
    found = read_gcu(Gcu({"k": []}, args={"k": args}).elf())
    assert found.signatures["k"][0].kind == "unknown"
    args[0]["Name"] = "numel"
    found = read_gcu(Gcu({"k": []}, args={"k": args}).elf())
    assert found.signatures["k"][0].name == "numel"


def test_how_topscc_spells_types() -> None:
    half = parse_type("const tops::half *")
    assert (half.dtype, half.is_pointer, half.is_const) == ("f16", True, True)
    assert parse_type("unsigned int").dtype == "u32"
    assert parse_type("const float").is_const is False
    assert parse_type("").dtype is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"Size": 0}, "parameter 1 of 'k' cannot be: 0 bytes at 8"),
        ({"Size": 4}, "parameter 1 of 'k' is a pointer of 4 bytes"),
        ({"Offset": 4}, "8 bytes at 4, 8 are taken"),
        ({"Offset": 1 << 40}, "cannot be"),
        ({"Size": -8}, "has no Size"),
        ({"Size": True}, "has no Size"),
        ({"Offset": "8"}, "has no Offset"),
        ({"ValueKind": None}, "has no ValueKind"),
        ({"ValueKind": "ByValue", "TypeName": "float"}, "is a f32 of 8 bytes"),
    ],
)
def test_metadata_that_cannot_be(change: dict[str, Any], words: str) -> None:
    args = describe(["size_t", "float*"])
    args[1].update(change)
    with pytest.raises(InvalidImageError, match=words):
        read_gcu(Gcu({"k": []}, args={"k": args}).elf())


@pytest.mark.parametrize("args", [[3], {"a": 1}, "text", [[]]])
def test_metadata_of_another_shape(args: object) -> None:
    with pytest.raises(InvalidImageError, match=r"is no (map|array)"):
        read_gcu(Gcu({"k": []}, args={"k": args}).elf())


def test_too_many_parameters() -> None:
    with pytest.raises(InvalidImageError, match="5000 parameters"):
        read_gcu(Gcu({"k": []}, args={"k": [0] * 5000}).elf())


def test_kernels_defined_twice() -> None:
    with pytest.raises(InvalidImageError, match="it defines 'nothing' twice"):
        read_gcu(Gcu(KERNELS, undescribed=["nothing"]).elf())


def test_what_is_for_others() -> None:
    assert not is_topsfb(b"") and not is_gcu(b"")
    with pytest.raises(InvalidImageError, match="no ELF file for GCUs"):
        read_gcu(b"\x7fELF" + bytes(60))
    with pytest.raises(InvalidImageError, match="offload bundle"):
        read_topsfb(b"__CLANG")
    amd = bundle(("hipv4-amdgcn-amd-amdhsa--gfx90a", b"\x7fELF" + bytes(60)))
    with pytest.raises(InvalidImageError, match=r"not for GCUs: it holds 'host-.*gfx90a'"):
        read_topsfb(amd)
    with pytest.raises(InvalidImageError, match="not for GCUs"):
        read_topsfb(bundle())


def test_every_truncation_is_refused(seed: int) -> None:
    image = topsfb(Gcu(KERNELS))
    generator = random.Random(seed)
    for length in generator.sample(range(len(image)), rounds(200, len(image))):
        with pytest.raises(InvalidImageError):
            read_gcu(only(image[:length]).payload)


def test_damaged_files_are_refused_or_read(seed: int) -> None:
    original = topsfb(Gcu(KERNELS), Gcu(KERNELS, "gcu200"))
    generator = random.Random(seed)
    refused = 0
    count = rounds(1000, 100_000)
    for _ in range(count):
        image = bytearray(original)
        for _ in range(generator.randrange(1, 12)):
            position = generator.randrange(len(image))
            if generator.random() < 0.5:
                image[position] = generator.randrange(256)
            else:
                image[position : position + 4] = generator.choice(
                    [b"\xff\xff\xff\xff", b"\0\0\0\0", b"\0\0\0\x80", struct.pack("<I", len(image))]
                )
        try:
            for entry in read_topsfb(bytes(image)):
                for signature in read_gcu(entry.payload).signatures.values():
                    total = signature.total_bytes
                    assert total is not None and total <= 1 << 16
        except (InvalidImageError, NotSupportedError):
            refused += 1
    assert 0 < refused < count

"""The cubin reader on both generations of the file, and on damaged ones."""

from __future__ import annotations

import random
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from tests.sampling import rounds
from uhal.errors import InvalidImageError
from uhal.images.cubin import is_cubin, read_cubin
from uhal.images.ptx import read_ptx
from uhal.signature import merge

DATA = Path(__file__).parents[1] / "data" / "cuda"
FLAGS = 48
OS_ABI = 7


@pytest.mark.parametrize(
    ("name", "target", "toolkit"),
    [
        ("sm_80", "sm_80", (13, 0)),
        ("sm_90a", "sm_90a", (13, 0)),
        ("sm_100f", "sm_100f", (13, 0)),
        ("old_sm_80", "sm_80", (12, 4)),
        ("old_sm_90a", "sm_90a", (12, 4)),
    ],
)
def test_what_ptxas_writes(name: str, target: str, toolkit: tuple[int, int]) -> None:
    image = read_cubin((DATA / f"{name}.cubin").read_bytes())
    assert (image.target, image.toolkit, image.relocatable) == (target, toolkit, False)
    entries = {entry.name: entry for entry in image.entries}
    assert sorted(entries) == ["indexed", "mixed", "nothing", "saxpy", "unused"]
    mixed = image.signatures["mixed"]
    assert [one.offset for one in mixed] == [0, 8, 16, 40, 43, 44, 46, 48, 56, 64]
    assert [one.size for one in mixed] == [8, 8, 24, 3, 1, 2, 2, 8, 2, 8]
    assert mixed[2].kind == mixed[3].kind == "aggregate"
    assert len(image.signatures["nothing"]) == 0
    assert entries["saxpy"].max_block == (1024, 1, 1)
    assert entries["nothing"].max_block is None
    assert entries["saxpy"].registers


def test_the_newest_compilers_say_which_parameters_are_pointers() -> None:
    signature = read_cubin((DATA / "sm_100f.cubin").read_bytes()).signatures["unused"]
    assert signature.declaration == "ptr, unknown[8], ptr"
    before = read_cubin((DATA / "sm_80.cubin").read_bytes()).signatures["unused"]
    assert before.declaration == "unknown[8], unknown[8], unknown[8]"


@pytest.mark.parametrize("name", ["sm_80", "sm_90a", "old_sm_80", "old_sm_90a"])
def test_a_cubin_agrees_with_the_ptx_of_its_source(name: str) -> None:
    ptx = read_ptx((DATA / "sm_75.ptx").read_bytes()).signatures
    for entry, signature in read_cubin((DATA / f"{name}.cubin").read_bytes()).signatures.items():
        both = merge(signature, ptx[entry])
        assert both is not None
        assert [one.offset for one in both] == [one.offset for one in ptx[entry]]


def test_a_relocatable_object_is_told_apart() -> None:
    image = read_cubin((DATA / "relocatable.cubin").read_bytes())
    assert image.relocatable
    assert "saxpy" in image.signatures


def test_the_flag_of_both_generations() -> None:
    new = bytearray((DATA / "sm_80.cubin").read_bytes())
    flags = struct.unpack_from("<I", new, FLAGS)[0]
    struct.pack_into("<I", new, FLAGS, flags | 0x8)
    assert read_cubin(bytes(new)).target == "sm_80a"
    old = bytearray((DATA / "old_sm_90a.cubin").read_bytes())
    flags = struct.unpack_from("<I", old, FLAGS)[0]
    struct.pack_into("<I", old, FLAGS, flags & ~0x800)
    assert read_cubin(bytes(old)).target == "sm_90"
    old[OS_ABI] = 0x12
    with pytest.raises(InvalidImageError, match="ABI 0x12"):
        read_cubin(bytes(old))


@pytest.mark.skipif(shutil.which("ptxas") is None, reason="no ptxas here")
@pytest.mark.parametrize("target", ["sm_75", "sm_86", "sm_90a", "sm_100a", "sm_121f"])
def test_parameters_of_every_size_and_space(target: str, tmp_path: Path) -> None:
    source = tmp_path / "k.ptx"
    source.write_text(
        f".version 8.8\n.target {target}\n.address_size 64\n.visible .entry k(\n"
        ".param .u64 p0, .param .u64 .ptr p1, .param .u64 .ptr .global p2,\n"
        ".param .u64 .ptr .shared .align 4 p3, .param .align 16 .b8 p4[5000], .param .u32 p5)\n"
        ".reqntid 64, 2, 1\n{ ret; }\n"
    )
    output = tmp_path / "k.cubin"
    subprocess.run(["ptxas", f"-arch={target}", source, "-o", output], check=True)
    image = read_cubin(output.read_bytes())
    assert image.target == target
    (entry,) = image.entries
    assert entry.signature is not None
    assert entry.required_block == (64, 2, 1)
    assert (
        entry.signature.declaration == "unknown[8], ptr, ptr, unknown[8], bytes[5000], unknown[4]"
    )
    assert [one.offset for one in entry.signature] == [0, 8, 16, 24, 32, 5032]


def test_what_is_no_cubin() -> None:
    assert not is_cubin(b"")
    assert not is_cubin(b"\x7fELF" + bytes(60))
    with pytest.raises(InvalidImageError, match="no ELF file for CUDA"):
        read_cubin(b"\x7fELF" + bytes(60))


def test_a_size_of_many_bytes_is_refused() -> None:
    """A case found by fuzzing: Python refuses to print 5000 digits, also in an error."""
    image = bytearray((DATA / "sm_80.cubin").read_bytes())
    at = image.index(b"\x03\x19")
    image[at] = 4  # the size then follows, and its byte count is in the next two bytes
    image[at + 2 : at + 4] = (24).to_bytes(2, "little")
    with pytest.raises(InvalidImageError, match=r"size of the parameters of '.*' cannot be read"):
        read_cubin(bytes(image))


@pytest.mark.parametrize("name", ["sm_80", "sm_100f", "old_sm_90a"])
def test_every_truncation_is_refused(name: str, seed: int) -> None:
    image = (DATA / f"{name}.cubin").read_bytes()
    generator = random.Random(seed)
    for length in generator.sample(range(len(image) - 64), rounds(200, 5000)):
        with pytest.raises(InvalidImageError):
            read_cubin(image[:length])


@pytest.mark.drawn(2)
@pytest.mark.parametrize("name", ["sm_80", "sm_100f", "old_sm_90a", "relocatable"])
def test_damaged_files_are_refused_or_read(name: str, seed: int) -> None:
    original = (DATA / f"{name}.cubin").read_bytes()
    generator = random.Random(seed)
    for _ in range(rounds(500, 50_000)):
        image = bytearray(original)
        for _ in range(generator.randrange(1, 20)):
            position = generator.randrange(len(image))
            if generator.random() < 0.5:
                image[position] = generator.randrange(256)
            else:
                image[position : position + 4] = generator.choice(
                    [b"\xff\xff\xff\xff", b"\0\0\0\0", b"\0\0\0\x80", struct.pack("<I", len(image))]
                )
        try:
            found = read_cubin(bytes(image))
        except InvalidImageError:
            continue
        for signature in found.signatures.values():
            total = signature.total_bytes
            assert total is not None and total <= 32764

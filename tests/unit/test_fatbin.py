"""The fatbin reader under every compression of nvcc, LZ4 itself, and damaged containers."""

from __future__ import annotations

import importlib.util
import random
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.sampling import rounds
from uhal.errors import InvalidImageError, NotSupportedError
from uhal.images import fatbin, lz4
from uhal.images.cubin import read_cubin
from uhal.images.fatbin import is_fatbin, read_fatbin
from uhal.images.ptx import read_ptx

DATA = Path(__file__).parents[1] / "data" / "cuda"
MODES = ["default", "size", "speed", "balance", "none"]
HAS_ZSTD = sys.version_info >= (3, 14) or importlib.util.find_spec("zstandard") is not None


def sample(mode: str) -> bytes:
    return (DATA / f"mode_{mode}.fatbin").read_bytes()


@pytest.mark.parametrize("mode", MODES)
def test_entries_are_listed_under_every_compression(mode: str) -> None:
    entries = read_fatbin(sample(mode))
    assert [entry.description for entry in entries] == [
        "cubin for sm_75",
        "PTX 9.0 for sm_75",
        "cubin for sm_100f",
    ]
    assert [entry.kind for entry in entries] == ["cubin", "PTX", "cubin"]
    assert [entry.ptx_version for entry in entries] == [None, (9, 0), None]


@pytest.mark.parametrize("mode", MODES)
def test_images_are_those_of_the_uncompressed_file(mode: str) -> None:
    plain = [entry.image() for entry in read_fatbin(sample("none"))]
    for entry, expected in zip(read_fatbin(sample(mode)), plain, strict=True):
        if entry.compression == "zstd" and not HAS_ZSTD:
            with pytest.raises(NotSupportedError, match="pip install zstandard"):
                entry.image()
            continue
        # Without compression a payload is padded to 8 bytes.
        assert entry.image().rstrip(b"\0") == expected.rstrip(b"\0")


def test_what_the_images_are() -> None:
    first, second, third = read_fatbin(sample("speed"))
    assert second.compression == "lz4"
    assert read_cubin(first.image()).target == "sm_75"
    assert read_ptx(second.image()).target == "sm_75"
    assert read_cubin(third.image()).target == "sm_100f"


@pytest.mark.drawn(1)
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc here")
@pytest.mark.parametrize("mode", MODES)
def test_what_nvcc_writes_for_many_targets(mode: str, tmp_path: Path) -> None:
    targets = ["80", "90a", "103a", "120f"]
    options = [f"-gencode=arch=compute_{one},code=[sm_{one},compute_{one}]" for one in targets]
    output = tmp_path / "all.fatbin"
    subprocess.run(
        ["nvcc", "--fatbin", f"--compress-mode={mode}", *options, DATA / "sample.cu", "-o", output],
        check=True,
    )
    entries = read_fatbin(output.read_bytes())
    assert {entry.target for entry in entries} == {f"sm_{one}" for one in targets}
    for entry in entries:
        if entry.compression == "zstd" and not HAS_ZSTD:
            continue
        image = entry.image()
        if entry.kind == "PTX":
            contents = read_ptx(image)
            assert contents.version == entry.ptx_version
            assert contents.target == entry.target
        else:
            assert read_cubin(image).target == entry.target


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc here")
def test_link_time_code_is_listed_as_something_else(tmp_path: Path) -> None:
    output = tmp_path / "lto.fatbin"
    options = ["-rdc=true", "-gencode=arch=compute_80,code=lto_80", "--compress-mode=none"]
    source = DATA / "sample.cu"
    subprocess.run(["nvcc", "--fatbin", *options, source, "-o", output], check=True)
    assert [entry.kind for entry in read_fatbin(output.read_bytes())] == ["other"]


def test_regions_one_after_another() -> None:
    both = sample("none") + sample("speed")
    assert len(read_fatbin(both)) == 6
    # Bytes after the last region are ignored.
    assert len(read_fatbin(both + b"\0" * 40)) == 6


def container(*payloads: bytes) -> bytes:
    """A region with an image of PTX for each payload."""
    entries = b"".join(
        struct.pack("<HHIQIIHHIIIQQQ", 1, 0x101, 64, len(payload), 0, 0, 0, 9, 75, 0, 0, 0, 0, 0)
        + payload
        for payload in payloads
    )
    return struct.pack("<IHHQ", fatbin.MAGIC, 1, 16, len(entries)) + entries


@pytest.mark.parametrize("length", range(17))
def test_the_next_region_begins_at_a_multiple_of_8(length: int, rng: np.random.Generator) -> None:
    payload = rng.bytes(length)
    first, second = container(payload), container(b"next")
    padding = bytes(-len(first) % 8)
    found = read_fatbin(first + padding + second)
    assert [bytes(entry.payload) for entry in found] == [payload, b"next"]
    for wrong in (padding + bytes(8), padding[:-1] if padding else bytes(1)):
        assert len(read_fatbin(first + wrong + second)) == 1


def test_as_many_images_and_regions_as_are_read() -> None:
    most = fatbin.MAX_ENTRIES
    assert len(read_fatbin(container(*[b""] * most))) == most
    with pytest.raises(InvalidImageError, match=f"more than {most} images"):
        read_fatbin(container(*[b""] * (most + 1)))
    # the limit is for the images of all regions together
    with pytest.raises(InvalidImageError, match=f"more than {most} images"):
        read_fatbin(container(*[b""] * (most - 1)) + container(b"", b""))
    empty = container()
    assert read_fatbin(empty * fatbin.MAX_REGIONS) == ()
    with pytest.raises(InvalidImageError, match=f"more than {fatbin.MAX_REGIONS} regions"):
        read_fatbin(empty * (fatbin.MAX_REGIONS + 1))


def test_what_is_no_fatbin() -> None:
    assert not is_fatbin(b"")
    with pytest.raises(InvalidImageError, match="magic number"):
        read_fatbin(b"\x7fELF" + bytes(100))
    empty = struct.pack("<IHHQ", fatbin.MAGIC, 1, 16, 0)
    assert read_fatbin(empty) == ()


@pytest.mark.drawn(2)
@pytest.mark.parametrize("mode", MODES)
def test_truncations_are_refused(mode: str, seed: int) -> None:
    image = sample(mode)
    generator = random.Random(seed)
    for length in generator.sample(range(len(image) - 8), rounds(100, 2000)):
        with pytest.raises(InvalidImageError):
            read_fatbin(image[:length])


def test_empty_entries_end_too() -> None:
    # A reader of entries without bytes would never advance.
    region = struct.pack("<IHHQ", fatbin.MAGIC, 1, 16, 64) + bytes(64)
    with pytest.raises(InvalidImageError, match="beyond its region"):
        read_fatbin(region)


@pytest.mark.drawn(2)
@pytest.mark.parametrize("mode", MODES)
def test_damaged_files_are_refused_or_read(mode: str, seed: int) -> None:
    original = sample(mode)
    generator = random.Random(seed)
    for _ in range(rounds(200, 20_000)):
        image = bytearray(original)
        for _ in range(generator.randrange(1, 12)):
            # Change headers most often: the first is at the start of the file.
            limit = len(image) if generator.random() < 0.5 else 100
            image[generator.randrange(limit)] = generator.randrange(256)
        try:
            entries = read_fatbin(bytes(image))
        except InvalidImageError:
            continue
        for entry in entries:
            try:
                contents = entry.image()
            except (InvalidImageError, NotSupportedError):
                continue
            assert len(contents) == entry.size


# -- LZ4 -------------------------------------------------------------------------------------------


def literals(data: bytes) -> bytes:
    """Return a block of one sequence without a match."""
    if len(data) < 15:
        return bytes([len(data) << 4]) + data
    more, rest = divmod(len(data) - 15, 255)
    return b"\xf0" + b"\xff" * more + bytes([rest]) + data


def compress(data: bytes, generator: random.Random) -> bytes:
    """A simple encoder, which is slow and only finds some matches."""
    block = bytearray()
    pending = bytearray()
    position = 0
    while position < len(data):
        length = generator.randrange(4, 400)
        piece = data[position : position + length]
        window = data[: position + len(piece) - 1]
        found = window.rfind(piece) if len(piece) >= 4 else -1
        if found < 0 or position - found > 65535 or position + len(piece) == len(data):
            pending.append(data[position])
            position += 1
            continue
        block += _sequence(bytes(pending), position - found, len(piece) - 4)
        pending.clear()
        position += len(piece)
    return bytes(block) + literals(bytes(pending))


def _sequence(before: bytes, distance: int, length: int) -> bytes:
    head = literals(before)
    token = head[0] | min(length, 15)
    tail = b""
    if length >= 15:
        more, rest = divmod(length - 15, 255)
        tail = b"\xff" * more + bytes([rest])
    return bytes([token]) + head[1:] + distance.to_bytes(2, "little") + tail


def test_lz4_undoes_an_encoder(seed: int) -> None:
    generator = random.Random(seed)
    for _ in range(rounds(30, 2000)):
        words = [generator.randbytes(generator.randrange(1, 9)) for _ in range(6)]
        data = b"".join(generator.choice(words) for _ in range(generator.randrange(400)))
        data += bytes(generator.randrange(300))
        assert lz4.decompress(compress(data, generator), len(data)) == data


def test_lz4_matches_reach_back_over_what_was_handed_on(seed: int) -> None:
    generator = random.Random(seed)
    data = generator.randbytes(4 * lz4.MOST_RECENT + generator.randrange(1000))
    block = _sequence(data, 7, 20)
    data += (data[-7:] * 4)[:24]
    for _ in range(3 * lz4.MOST_RECENT // 300):
        distance = generator.choice([65535, generator.randrange(400, 65535)])
        block += _sequence(b"", distance, 296)
        data += data[-distance:][:300]
    assert lz4.decompress(block + literals(b"end"), len(data) + 3) == data + b"end"


def test_lz4_overlapping_match() -> None:
    assert lz4.decompress(b"\x1fa\x01\x00\x05" + b"\x10b", 1 + 24 + 1) == b"a" * 25 + b"b"
    assert lz4.decompress(b"\x23ab\x02\x00" + b"\x00", 9) == b"abababa" + b"ba"


@pytest.mark.parametrize(
    ("block", "size"),
    [
        (b"", 0),
        (b"\x10", 1),
        (b"\xf0", 20),
        (b"\xf0\xff\xff", 2000),
        (b"\x10ab", 2),
        (b"\x10a\x01", 9),
        (b"\x10a\x00\x00\x00", 5),
        (b"\x10a\x02\x00\x00", 5),
        (b"\x1fa\x01\x00\xff\xff\xff\xff\xff\xff\xff\xff", 100),
        (literals(b"abc"), 2),
        (literals(b"abc"), 4),
    ],
)
def test_lz4_refusals(block: bytes, size: int) -> None:
    with pytest.raises(InvalidImageError, match="damaged"):
        lz4.decompress(block, size)


def test_lz4_never_makes_more_than_it_was_told() -> None:
    bomb = b"\x1fa\x01\x00" + b"\xff" * 1_000_000 + b"\x00" + b"\x10b"
    with pytest.raises(InvalidImageError, match="beyond the output"):
        lz4.decompress(bomb, 1000)

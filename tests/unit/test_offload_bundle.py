"""The offload bundle reader: bundles of clang's bundler, every header version, and damage."""

from __future__ import annotations

import contextlib
import importlib.util
import random
import struct
import sys
import time
import zlib
from pathlib import Path

import pytest

from tests.requirements import needed
from tests.sampling import rounds
from uhal.errors import InvalidImageError, NotSupportedError
from uhal.images import offload_bundle
from uhal.images.hsaco import read_hsaco
from uhal.images.offload_bundle import is_offload_bundle, read_offload_bundle

DATA = Path(__file__).parents[1] / "data" / "rocm"
PLAIN = (DATA / "plain.hipfb").read_bytes()
HAS_ZSTD = sys.version_info >= (3, 14) or importlib.util.find_spec("zstandard") is not None
HEADERS = {1: "<4sHHIQ", 2: "<4sHHIIQ", 3: "<4sHHQQQ"}


def compressed(version: int, bundle: bytes, size: int | None = None, method: int = 0) -> bytes:
    packed = zlib.compress(bundle)
    told = len(bundle) if size is None else size
    layout = struct.Struct(HEADERS[version])
    sizes = (told,) if version == 1 else (layout.size + len(packed), told)
    return layout.pack(b"CCOB", version, method, *sizes, 0x1234) + packed


def bundle(*entries: tuple[str, int, int], tail: bytes = b"") -> bytes:
    table = b"".join(
        struct.pack("<QQQ", offset, size, len(name)) + name.encode()
        for name, offset, size in entries
    )
    return offload_bundle.MAGIC + struct.pack("<Q", len(entries)) + table + tail


def check(image: bytes) -> None:
    assert is_offload_bundle(image)
    host, *devices = read_offload_bundle(image)
    assert host.for_host and host.payload == b""
    assert not any(entry.for_host for entry in devices)
    assert [entry.kind for entry in devices] == ["hipv4"] * 3
    targets = ["gfx90a:sramecc+:xnack-", "gfx1100", "gfx11-generic"]
    assert [entry.target for entry in devices] == [f"amdgcn-amd-amdhsa--{one}" for one in targets]
    assert [str(read_hsaco(entry.payload).target) for entry in devices] == targets
    assert devices[1].payload == (DATA / "gfx1100.hsaco").read_bytes()


def test_what_the_bundler_writes() -> None:
    check(PLAIN)


@needed(HAS_ZSTD, "needs zstandard or Python 3.14")
def test_what_the_bundler_compresses() -> None:
    image = (DATA / "zstd.hipfb").read_bytes()
    check(image)
    # The header's size says where a compressed bundle ends.
    check(image + bytes(100))


def test_without_zstd_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("compression", "zstandard"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(NotSupportedError, match="pip install zstandard, or build with"):
        read_offload_bundle((DATA / "zstd.hipfb").read_bytes())


@pytest.mark.parametrize("version", HEADERS)
def test_every_version_of_the_header(version: int) -> None:
    check(compressed(version, PLAIN))


@pytest.mark.parametrize("version", [2, 3])
def test_a_compressed_bundle_that_is_cut_off(version: int) -> None:
    with pytest.raises(InvalidImageError, match="truncated"):
        read_offload_bundle(compressed(version, PLAIN)[:-1])


@pytest.mark.parametrize(
    ("image", "problem"),
    [
        (b"", "magic"),
        (b"\x7fELF", "magic"),
        (b"CCOB", "breaks off"),
        (b"CCOB\x09\x00\x00\x00" + bytes(40), "version 9"),
        (compressed(3, PLAIN, method=7), "method 7"),
        (compressed(3, PLAIN, size=len(PLAIN) - 1), "instead of"),
        (compressed(3, PLAIN, size=len(PLAIN) + 1), "instead of"),
        (compressed(3, PLAIN, size=1 << 40), "cannot hold"),
        (compressed(1, PLAIN, size=0), "cannot hold"),
        (compressed(2, b"x" * 100), "magic"),
        (compressed(2, compressed(2, PLAIN)), "magic"),
        (compressed(2, PLAIN)[:24] + b"\0" * 4000, "truncated|damaged"),
        (offload_bundle.MAGIC, "breaks off"),
        (bundle()[:-8] + b"\xff" * 8, "claims"),
        (bundle(("hip-a", 0, 1 << 63)), "beyond its end"),
        (bundle(("hip-a", 1 << 63, 1)), "beyond its end"),
        (bundle(("hip-a", 0, 50), ("hip-b", 0, 50), ("hip-c", 0, 50)), "beyond its end"),
        (bundle(("hip-a", 0, 0))[:-1], "the id of an entry breaks off"),
    ],
)
def test_refusals(image: bytes, problem: str) -> None:
    with pytest.raises(InvalidImageError, match=problem):
        read_offload_bundle(image)


def test_a_bomb_makes_no_more_than_its_header_says() -> None:
    packed = zlib.compress(bytes(1 << 28), 9)
    image = struct.pack("<4sHHQQQ", b"CCOB", 3, 0, 32 + len(packed), 1000, 0) + packed
    start = time.process_time()
    with pytest.raises(InvalidImageError, match="instead of 1000"):
        read_offload_bundle(image)
    assert time.process_time() - start < 1


def test_truncations_are_refused_or_lack_code(seed: int) -> None:
    generator = random.Random(seed)
    for length in generator.sample(range(len(PLAIN)), rounds(200, 5000)):
        with pytest.raises(InvalidImageError):
            read_offload_bundle(PLAIN[:length])


@pytest.mark.parametrize("version", [0, *HEADERS])
def test_damage_only_raises_invalid_image(version: int, seed: int) -> None:
    original = compressed(version, PLAIN) if version else PLAIN
    generator = random.Random(seed)
    for _ in range(rounds(300, 20_000)):
        image = bytearray(original)
        for _ in range(generator.randrange(1, 8)):
            limit = len(image) if generator.random() < 0.3 else 250
            image[generator.randrange(limit)] = generator.randrange(256)
        with contextlib.suppress(InvalidImageError, NotSupportedError):
            entries = read_offload_bundle(bytes(image))
            assert sum(len(entry.payload) for entry in entries) <= len(PLAIN) + len(image)


def test_damage_behind_the_header_only_raises_invalid_image(seed: int) -> None:
    """The damage comes before the compression, so that the reader sees damaged contents."""
    generator = random.Random(seed)
    # Offsets of the table, and of each code object's ELF header with its target.
    starts = [0, *(PLAIN.find(b"\x7fELF", at) for at in range(0, len(PLAIN), 4096))]
    read = 0
    for _ in range(rounds(300, 20_000)):
        image = bytearray(PLAIN)
        for _ in range(generator.randrange(1, 8)):
            start = max(generator.choice(starts), 0) if generator.random() < 0.7 else 0
            reach = generator.choice((64, 400, len(image) - start))
            at = start + generator.randrange(min(reach, len(image) - start))
            image[at] = generator.choice((0, 1, 0x7F, 0xFF, generator.randrange(256)))
        version = generator.choice(tuple(HEADERS))
        with contextlib.suppress(InvalidImageError):
            entries = read_offload_bundle(compressed(version, bytes(image)))
            assert sum(len(entry.payload) for entry in entries) <= len(image)
            for entry in entries:
                with contextlib.suppress(InvalidImageError):
                    read += len(read_hsaco(entry.payload).kernels)
    # If all bundles were refused at once, their contents would be untested.
    assert read


@needed(HAS_ZSTD, "needs zstandard or Python 3.14")
def test_damage_to_zstd_only_raises_invalid_image(seed: int) -> None:
    original = (DATA / "zstd.hipfb").read_bytes()
    generator = random.Random(seed)
    for _ in range(rounds(200, 20_000)):
        image = bytearray(original)
        for _ in range(generator.randrange(1, 5)):
            image[generator.randrange(len(image))] = generator.randrange(256)
        with contextlib.suppress(InvalidImageError, NotSupportedError):
            read_offload_bundle(bytes(image))

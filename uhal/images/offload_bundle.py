"""Reads clang's offload bundles, the container of one HIP program for several targets.

A bundle is a table of entries and their code; `--offload-compress` compresses a whole bundle with
zlib or zstd, behind a header of one of three versions. Source: clang's documentation, "Clang
Offload Bundler".
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from io import BytesIO
from typing import NoReturn

from uhal.errors import InvalidImageError
from uhal.images import zstd

MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
COMPRESSED_MAGIC = b"CCOB"
MAX_ENTRIES = 4096
MAX_ID_BYTES = 4096
MAX_BYTES = 1 << 30
"""Bytes of a bundle once decompressed."""

_COUNT = struct.Struct("<Q")
_ENTRY = struct.Struct("<QQQ")  # offset and bytes of the code, bytes of the id
_COMPRESSED = struct.Struct("<4sHH")  # magic, version, method
_SIZES = {
    # Header fields by version: bytes of the file (if stored), bytes and digest of the bundle.
    1: struct.Struct("<0sIQ"),
    2: struct.Struct("<IIQ"),
    3: struct.Struct("<QQQ"),
}
_ZLIB = 0
_ZSTD = 1
_MOST_EXPANSION = 1032
"""Most output bytes per byte of zlib data: 258 for two bits."""
_PART = 1 << 20
"""Bytes decoded at a time: zlib joins the pieces of one call by a copy."""


@dataclass(frozen=True)
class BundleEntry:
    """One code object of a bundle."""

    id: str
    """Spelling of the compiler: `hipv4-amdgcn-amd-amdhsa--gfx90a:xnack-`."""
    kind: str
    """Origin of the code: `hip`, `hipv4`, `openmp`, `host`."""
    target: str
    """Its target id, `amdgcn-amd-amdhsa--gfx90a:xnack-`; for host code a triple."""
    payload: bytes

    @property
    def for_host(self) -> bool:
        """True for the entry of the host program, which is usually empty."""
        return self.kind == "host"


def is_offload_bundle(image: bytes) -> bool:
    """Say whether the bytes begin as a bundle does, plain or compressed."""
    return image.startswith((MAGIC, COMPRESSED_MAGIC))


def read_offload_bundle(image: bytes) -> tuple[BundleEntry, ...]:
    """List the code objects of a bundle, in the file's order.

    Raises `InvalidImageError` if the bytes are no bundle or damaged, `NotSupportedError` if the
    bundle is compressed with zstd and this Python cannot decode zstd. Bytes after the bundle in
    `image` are ignored.
    """
    if image.startswith(COMPRESSED_MAGIC):
        image = _decompressed(image)
    if not image.startswith(MAGIC):
        _fail("it does not begin with the magic string of one")
    position = len(MAGIC)
    (count,) = _unpack(_COUNT, image, position)
    position += _COUNT.size
    if count > MAX_ENTRIES:
        _fail(f"it claims {count} entries")
    entries: list[BundleEntry] = []
    # Entries may overlap in a hostile file, so their total size may not exceed the file's.
    budget = len(image)
    for _ in range(count):
        offset, size, id_bytes = _unpack(_ENTRY, image, position)
        position += _ENTRY.size
        if id_bytes > MAX_ID_BYTES or position + id_bytes > len(image):
            _fail("the id of an entry breaks off")
        name = image[position : position + id_bytes].decode("utf-8", "replace")
        position += id_bytes
        budget -= size
        if offset > len(image) or size > len(image) - offset or budget < 0:
            _fail(f"the code for {name[:80]!r} reaches beyond its end")
        kind, _, target = name.partition("-")
        entries.append(BundleEntry(name, kind, target, image[offset : offset + size]))
    return tuple(entries)


def _decompressed(image: bytes) -> bytes:
    """Return the bundle inside a compressed bundle.

    The digest is not compared, because versions of the compiler compute it by different functions.
    """
    _, version, method = _unpack(_COMPRESSED, image, 0)
    sizes = _SIZES.get(version)
    if sizes is None:
        _fail(f"version {version} of a compressed bundle is unknown")
    reported, size, _ = _unpack(sizes, image, _COMPRESSED.size)
    start = _COMPRESSED.size + sizes.size
    end = reported or len(image)
    if not start <= end <= len(image):
        _fail(f"it should have {end} bytes and has {len(image)}: is it truncated?")
    if not len(MAGIC) + _COUNT.size <= size <= MAX_BYTES:
        _fail(f"it cannot hold a bundle of {size} bytes")
    packed = image[start:end]
    if method == _ZLIB:
        return _inflated(packed, size)
    if method == _ZSTD:
        return zstd.decompress(packed, size, "build with --no-offload-compress")
    _fail(f"compression method {method} is unknown")


def _inflated(packed: bytes, size: int) -> bytes:
    if size > _MOST_EXPANSION * len(packed):
        _fail(f"{len(packed)} bytes cannot hold {size}")
    output = BytesIO()
    decoder = zlib.decompressobj()
    try:
        for start in range(0, len(packed), _PART):
            pending = packed[start : start + _PART]
            # Decoding one byte more than expected detects a longer bundle.
            while output.tell() <= size and not decoder.eof:
                most = min(_PART, size + 1 - output.tell())
                if output.write(decoder.decompress(pending, most)) < most:
                    break
                pending = decoder.unconsumed_tail
    except zlib.error as error:
        _fail(f"it is damaged: {error}")
    if output.tell() != size:
        _fail(f"it holds {output.tell()} bytes or more instead of {size}")
    return output.getvalue()


def _unpack(layout: struct.Struct, image: bytes, position: int) -> tuple[int, ...]:
    if position + layout.size > len(image):
        _fail("it breaks off")
    return layout.unpack_from(image, position)


def _fail(problem: str) -> NoReturn:
    raise InvalidImageError(f"this offload bundle cannot be read: {problem}")

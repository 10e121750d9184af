"""Reads fatbins, NVIDIA's container of one program for several targets.

One or more regions follow each other, each a header and entries. An entry is a header and a
payload, PTX or a cubin, plain or compressed. NVIDIA does not document the format; the layout here
was found in outputs of nvcc 12.4 and 13.0 under each `--compress-mode`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Literal, NoReturn

from uhal.errors import InvalidImageError
from uhal.images import lz4, zstd

MAGIC = 0xBA55ED50
MAX_ENTRIES = 4096
MAX_REGIONS = 4096
MAX_PAYLOAD = 256 << 20
"""Bytes of a payload once decompressed."""

Kind = Literal["PTX", "cubin", "other"]
Compression = Literal["none", "lz4", "zstd"]

_KINDS: dict[int, Kind] = {1: "PTX", 2: "cubin"}

_REGION = struct.Struct("<IHHQ")  # magic, version, header bytes, bytes of the entries
_ENTRY = struct.Struct(
    "<HHIQ"  # kind, version, header bytes, payload bytes with padding
    "IIHHI"  # compressed bytes, offset of options, minor, major, SM number
    "IIQQQ"  # offset and bytes of the file name, flags, reserved, decompressed bytes
)
_LZ4 = 0x2000
_ZSTD = 0x8000
_ARCHITECTURE_SPECIFIC = 0x100000
_FAMILY_SPECIFIC = 0x200000


@dataclass(frozen=True)
class FatbinEntry:
    """An image of a fatbin."""

    kind: Kind
    target: str
    """`sm_75`, `sm_90a`, `sm_100f`; for PTX the architecture it was written for."""
    ptx_version: tuple[int, int] | None
    """PTX ISA version; `None` for other payloads."""
    compression: Compression
    payload: memoryview
    size: int
    """Bytes of the image."""

    @property
    def description(self) -> str:
        """Name of the entry in messages: `PTX 9.0 for sm_75`, `cubin for sm_90a`."""
        if self.ptx_version is not None:
            return f"PTX {self.ptx_version[0]}.{self.ptx_version[1]} for {self.target}"
        return f"{self.kind} for {self.target}"

    def image(self) -> bytes:
        """Return the image, decompressed.

        Raises `InvalidImageError` if it is damaged, `NotSupportedError` if it is compressed with
        zstd and this Python cannot decode zstd.
        """
        if self.compression == "lz4":
            return lz4.decompress(bytes(self.payload), self.size)
        if self.compression == "zstd":
            otherwise = "build with nvcc --compress-mode=speed"
            return zstd.decompress(bytes(self.payload), self.size, otherwise)
        return bytes(self.payload)


def is_fatbin(image: bytes) -> bool:
    """Say whether the bytes begin as a fatbin does."""
    return image[:4] == MAGIC.to_bytes(4, "little")


def read_fatbin(image: bytes) -> tuple[FatbinEntry, ...]:
    """List the images of a fatbin, in its order. Nothing is decompressed.

    Raises `InvalidImageError` if it is no fatbin or truncated.
    """
    if not is_fatbin(image):
        _fail("it does not begin with its magic number")
    entries: list[FatbinEntry] = []
    view = memoryview(image)
    position = 0
    regions = 0
    # Bytes after the last region, mostly padding, belong to no region.
    while is_fatbin(image[position : position + 4]):
        regions += 1
        if regions > MAX_REGIONS:
            _fail(f"it has more than {MAX_REGIONS} regions")
        if position + _REGION.size > len(image):
            _fail("the header of a region breaks off")
        _, _, header_bytes, body_bytes = _REGION.unpack_from(image, position)
        start = position + header_bytes
        end = start + body_bytes
        if header_bytes < _REGION.size or end > len(image):
            _fail("a region reaches beyond its end")
        _read_region(view[start:end], entries)
        # Regions of a linked program begin at multiples of 8.
        position = -(-end // 8) * 8
    return tuple(entries)


def _read_region(region: memoryview, entries: list[FatbinEntry]) -> None:
    position = 0
    while position < len(region):
        if len(entries) == MAX_ENTRIES:
            _fail(f"it has more than {MAX_ENTRIES} images")
        if position + _ENTRY.size > len(region):
            _fail("the header of an image breaks off")
        fields = _ENTRY.unpack_from(region, position)
        kind, _, header_bytes, padded_bytes, compressed_bytes, _, minor, major, sm = fields[:9]
        flags, _, decompressed_bytes = fields[11:]
        start = position + header_bytes
        end = start + padded_bytes
        if header_bytes < _ENTRY.size or end > len(region):
            _fail("an image reaches beyond its region")
        compression: Compression = "none"
        size = padded_bytes
        if flags & (_LZ4 | _ZSTD):
            compression = "zstd" if flags & _ZSTD else "lz4"
            size = decompressed_bytes
            if not 0 < compressed_bytes <= padded_bytes or not 0 < size <= MAX_PAYLOAD:
                _fail("the sizes of a compressed image are impossible")
            end = start + compressed_bytes
        known = _KINDS.get(kind, "other")
        suffix = "a" if flags & _ARCHITECTURE_SPECIFIC else "f" if flags & _FAMILY_SPECIFIC else ""
        entries.append(
            FatbinEntry(
                kind=known,
                target=f"sm_{sm}{suffix}",
                ptx_version=(major, minor) if known == "PTX" else None,
                compression=compression,
                payload=region[start:end],
                size=size,
            )
        )
        position += header_bytes + padded_bytes


def _fail(problem: str) -> NoReturn:
    raise InvalidImageError(f"this fatbin cannot be read: {problem}")

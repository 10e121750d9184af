"""Files of weights with changed, cut or moved bytes: refused by name, or read within bounds."""

from __future__ import annotations

import os
import random
import tracemalloc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ubridge as ub
from tests.sampling import rounds
from ubridge.quantized import QuantizedWeight
from uhal import Device
from uhal.errors import InvalidImageError, NotSupportedError

MUTANTS = {"gguf": rounds(2000, 1_000_000), "safetensors": rounds(1000, 100_000)}
EDGES = (0, 1, 7, 8, 9, 31, 63, 127, 128, 255)
WORDS = (0, 1, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
ROOM = 1 << 20
"""Bytes that reading may allocate in addition to the file's size."""


def original(path: Path, rng: np.random.Generator) -> bytes:
    tensors: dict[str, Any] = {
        "a": rng.standard_normal((2, 3)).astype(np.float32),
        "bias": np.arange(5, dtype=np.int16),
    }
    metadata: Mapping[str, Any] = {"format": "x", "k": "a text"}
    if path.suffix == ".gguf":
        tensors["q"] = QuantizedWeight.from_numpy(rng.standard_normal((3, 64)), "q4_0")
        metadata = {
            "general.alignment": 32,
            "n": 7,
            "f": 0.5,
            "flag": True,
            "text": "abc",
            "texts": ["a", "bc", ""],
            "numbers": [1, 2],
            "nested": [[1], [2, 3]],
        }
    ub.save(path, tensors, metadata=metadata)
    return path.read_bytes()


def mutant(draw: random.Random, good: bytes) -> bytes:
    raw = bytearray(good)
    for _ in range(draw.randint(1, 3)):
        at = draw.randrange(max(len(raw), 1))
        match draw.randrange(6):
            case 0:
                raw[at : at + 1] = bytes([draw.choice(EDGES)])
            case 1:
                raw[at : at + 1] = draw.randbytes(1)
            case 2:
                raw[at : at + 8] = draw.choice(WORDS).to_bytes(8, "little")
            case 3:
                del raw[at:]
            case 4:
                other = draw.randrange(max(len(raw), 1))
                raw[at : at + 8] = raw[other : other + 8]
            case _:
                del raw[at : at + draw.randint(1, 8)]
    return bytes(raw)


@contextmanager
def rewritten(folder: Path) -> Iterator[tuple[Path, int]]:
    """Yield a file to rewrite many times, in memory where possible, since a disk is slower."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("mutant")
        path = Path(f"/proc/self/fd/{descriptor}")
    else:
        path = folder / "mutant"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        yield path, descriptor
    finally:
        os.close(descriptor)


def read_all(path: Path) -> None:
    """Read all metadata and every tensor, as a user would."""
    weights = ub.load(path)
    for key in weights.metadata:
        weights.metadata[key]
    size = os.path.getsize(path)
    for name, entry in weights.entries.items():
        assert 0 <= entry.start <= entry.start + entry.nbytes <= size
        assert len(weights.raw(name)) == entry.nbytes
        try:
            weights[name]
        except NotSupportedError:
            assert isinstance(entry.kind, str)


@pytest.mark.parametrize("suffix", MUTANTS)
def test_mutants(host: Device, tmp_path: Path, rng: np.random.Generator, suffix: str) -> None:
    good = original(tmp_path / f"good.{suffix}", rng)
    read_all(tmp_path / f"good.{suffix}")
    draw = random.Random(int(rng.integers(1 << 62)))
    refused = 0
    with rewritten(tmp_path) as (path, descriptor):
        for number in range(MUTANTS[suffix]):
            raw = mutant(draw, good)
            os.ftruncate(descriptor, len(raw))
            os.pwrite(descriptor, raw, 0)
            watched = number % 20 == 0
            if watched:
                tracemalloc.start()
            try:
                read_all(path)
            except InvalidImageError as error:
                assert str(path) in str(error)
                refused += 1
            except Exception as error:
                raise AssertionError(f"mutant {number}, {raw.hex()}") from error
            finally:
                if watched:
                    peak = tracemalloc.get_traced_memory()[1]
                    tracemalloc.stop()
                    assert peak <= len(raw) + ROOM
    assert refused > MUTANTS[suffix] // 4

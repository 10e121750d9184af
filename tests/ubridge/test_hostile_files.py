"""Files of weights with bytes changed, cut or moved: named as damaged, or read within bounds."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Mapping
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
"""Bytes that reading may take besides as many as the file has."""


def original(path: Path, rng: np.random.Generator) -> bytes:
    tensors: dict[str, Any] = {
        "a": rng.standard_normal((2, 3)).astype(np.float32),
        "bias": np.arange(5, dtype=np.int16),
    }
    metadata: Mapping[str, Any] = {"format": "x", "k": "a text"}
    if path.suffix == ".gguf":
        tensors["q"] = QuantizedWeight.from_numpy(rng.standard_normal((3, 64)), "q4_0")
        metadata = {
            "general.alignment": 32, "n": 7, "f": 0.5, "flag": True, "text": "abc",
            "texts": ["a", "bc", ""], "numbers": [1, 2], "nested": [[1], [2, 3]],
        }  # fmt: skip
    ub.save(path, tensors, metadata=metadata)
    return path.read_bytes()


def mutant(rng: np.random.Generator, good: bytes) -> bytes:
    raw = bytearray(good)
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(0, max(len(raw), 1)))
        match int(rng.integers(0, 6)):
            case 0:
                raw[at : at + 1] = bytes([int(rng.choice(EDGES))])
            case 1:
                raw[at : at + 1] = rng.bytes(1)
            case 2:
                raw[at : at + 8] = WORDS[int(rng.integers(len(WORDS)))].to_bytes(8, "little")
            case 3:
                del raw[at:]
            case 4:
                other = int(rng.integers(0, max(len(raw), 1)))
                raw[at : at + 8] = raw[other : other + 8]
            case _:
                del raw[at : at + int(rng.integers(1, 9))]
    return bytes(raw)


def read_all(path: Path) -> None:
    """Everything a file says, and every tensor, as a user would."""
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
    path = tmp_path / f"mutant.{suffix}"
    good = original(path, rng)
    read_all(path)
    refused = 0
    for number in range(MUTANTS[suffix]):
        raw = mutant(rng, good)
        path.write_bytes(raw)
        watched = number % 20 == 0
        if watched:
            tracemalloc.start()
        try:
            read_all(path)
        except InvalidImageError as error:
            assert str(path) in str(error)
            refused += 1
        finally:
            if watched:
                peak = tracemalloc.get_traced_memory()[1]
                tracemalloc.stop()
                assert peak <= len(raw) + ROOM
    assert refused > MUTANTS[suffix] // 4

"""Images that gzip compressed: unpacked within a limit, and chosen like plain ones."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import numpy as np
import pytest

from cuda_backend.images import select
from cuda_backend.targets import DeviceTarget
from uhal.errors import InvalidImageError
from uhal.images import gzipped

FATBIN = Path(__file__).resolve().parents[1] / "data" / "cuda" / "mode_none.fatbin"


def test_contents_are_unpacked_and_other_files_kept(rng: np.random.Generator) -> None:
    image = rng.bytes(int(rng.integers(1, 5000)))
    assert gzipped.unpacked(gzip.compress(image), "it") == image
    plain = b"\x7fELF" + image
    assert gzipped.unpacked(plain, "it") is plain


def test_damaged_files_are_refused(seed: int) -> None:
    generator = random.Random(seed)
    packed = gzip.compress(generator.randbytes(2000))
    cut = packed[: generator.randrange(2, len(packed))]
    for damaged in (cut, packed + b"\0", packed[:10] + b"\xff" + packed[11:]):
        with pytest.raises(InvalidImageError, match=r"^it is damaged: "):
            gzipped.unpacked(damaged, "it")


def test_a_small_file_cannot_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gzipped, "MAX_BYTES", 1000)
    assert gzipped.unpacked(gzip.compress(bytes(1000)), "it") == bytes(1000)
    with pytest.raises(InvalidImageError, match=r"it holds more than 1,000 bytes"):
        gzipped.unpacked(gzip.compress(bytes(1001)), "it")


@pytest.mark.parametrize("capability", [(7, 5), (8, 0), (8, 6)])
def test_the_same_image_is_chosen_from_a_gzipped_fatbin(capability: tuple[int, int]) -> None:
    device = DeviceTarget("cuda:0", capability, (13, 0))
    image = FATBIN.read_bytes()
    plain, packed = select(image, device), select(gzip.compress(image), device)
    assert (packed.payload, packed.chosen) == (plain.payload, plain.chosen)

"""Kernels become WGSL that naga accepts, or an error says why not; damaged kernels never crash."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import pytest

import ubridge
from tests.sampling import SOAK, rounds
from tests.webgpu.kernels import cut, entries
from uhal import Device
from uhal.errors import InvalidImageError, NotSupportedError
from uhal.images.spirv import SpirvModule
from webgpu_backend.translator import translate

Words = npt.NDArray[np.uint32]
IMMEDIATE_BYTES = 128
REFUSED = "of f64, which WebGPU devices do not compute"


def translated(name: str, entry: str, immediate_bytes: int = IMMEDIATE_BYTES) -> str:
    one = cut(name, entry)
    module = SpirvModule(one.image, entry)
    return translate(module, module.entries[entry], immediate_bytes, len(one.hidden)).text


def test_most_kernels_translate(rng: np.random.Generator) -> None:
    every = list(entries())
    drawn = every if SOAK else [every[at] for at in rng.permutation(len(every))[:60]]
    refused = []
    for name, entry in drawn:
        try:
            assert "fn kernel(" in translated(name, entry)
        except NotSupportedError as reason:
            assert str(reason).endswith(REFUSED), f"{entry}: {reason}"
            assert entry.endswith("_f64")
            refused.append(entry)
    # 7 % of all entries are refused. A sample may contain a larger share by chance.
    assert len(refused) <= len(drawn) * (0.07 if SOAK else 0.2), refused


def test_naga_accepts_what_is_written(device: Device, rng: np.random.Generator) -> None:
    every = [(name, entry) for name, entry in entries() if not entry.endswith("_f64")]
    drawn = every if SOAK else [every[at] for at in rng.permutation(len(every))[:25]]
    for name, entry in drawn:
        ubridge.load_module(name, device=device).get_function(entry)


def test_parameters_beyond_the_immediates_are_a_uniform_buffer() -> None:
    text = translated("unary", "usqr_f32", 0)
    assert "var<uniform> P: Params;" in text and "var<immediate>" not in text


def test_the_same_kernel_gives_the_same_text() -> None:
    assert translated("reduce", "fast_sum_f32") == translated("reduce", "fast_sum_f32")


@pytest.mark.parametrize("dtype", ["i16", "i32", "i64"])
def test_signed_remainders_are_of_divisions(dtype: str) -> None:
    """NVIDIA's Vulkan driver gives other remainders of negative integers for naga's `%`."""
    text = translated("binary", f"bremainder_{dtype}")
    assert re.search(r"- \(?bitcast<i(32|64)>.* / \(?bitcast<i", text) and " % " not in text


DAMAGED = rounds(300, 100_000)
EACH = 50
"""Damaged images per drawn kernel: extracting a kernel takes longer than refusing an image."""


def test_damaged_modules_are_refused_or_translated(rng: np.random.Generator) -> None:
    every = [(name, entry) for name, entry in entries() if not entry.endswith("_f64")]
    for _ in range(DAMAGED // EACH):
        name, entry = every[rng.integers(len(every))]
        image = np.frombuffer(cut(name, entry).image, "u4")
        for _ in range(EACH):
            words = damaged(image, rng)
            try:
                module = SpirvModule(words.tobytes(), entry)
                for one in module.entries.values():
                    translate(module, one, IMMEDIATE_BYTES)
            except (InvalidImageError, NotSupportedError):
                pass
            except Exception as error:
                raise AssertionError(f"{name}, {entry}: {words.tobytes().hex()}") from error


@pytest.mark.parametrize(
    ("type_", "word"), [(21, 2), (22, 2), (23, 3)], ids=["int", "float", "vector"]
)
def test_types_without_size_are_refused(type_: int, word: int) -> None:
    """A structure of such a member has no alignment. Each type of a kernel gets no size, one type
    after the other."""
    image = np.frombuffer(cut("affine", "affine_bf16").image, "u4")
    reasons = set()
    for at, _ in instructions(image):
        if image[at] & 0xFFFF == type_:
            words = image.copy()
            words[at + word] = 0
            with pytest.raises((InvalidImageError, NotSupportedError)) as caught:
                module = SpirvModule(words.tobytes(), "the image")
                for identifier in module.globals:
                    if module.opcode(identifier) in range(20, 33):
                        module.size_and_alignment(identifier)
            reasons.add(str(caught.value))
    assert reasons == {"the image has a number of 0 bits, or a vector of 0 numbers"}


def test_types_beyond_measure_are_refused_before_text_is_written() -> None:
    """Integers of 2**30 bits, and a structure of 5,000 halves that is passed by value."""
    image = np.frombuffer(cut("fill", "fill_bf16").image, "u4")
    at = {int(image[at]) & 0xFFFF: at for at, _ in instructions(image)}
    wide, long = image.copy(), [*image[: at[30]], 5002 << 16 | 30, image[at[30] + 1]]
    wide[at[21] + 2] = 1 << 30
    long += [image[at[30] + 2]] * 5000 + [*image[at[30] + 3 :]]
    for words, reason in ((wide, "int numbers of 1073741824 bits"), (long, "at most 4096")):
        module = SpirvModule(np.array(words, "u4").tobytes(), "the image")
        with pytest.raises(NotSupportedError, match=reason):
            translate(module, module.entries["fill_bf16"], IMMEDIATE_BYTES)


def damaged(image: Words, rng: np.random.Generator) -> Words:
    """Return an image with one to three changed, lost or repeated instructions or words."""
    words = image.copy()
    for _ in range(rng.integers(1, 4)):
        found = instructions(words)
        if not found:
            break
        (at, size), (there, length) = (found[rng.integers(len(found))] for _ in range(2))
        within, other = at + rng.integers(size), there + rng.integers(length)
        match rng.integers(9):
            case 0:
                words[within] = rng.integers(1 << 32)
            case 1:
                words[within] ^= np.uint32(1 << int(rng.integers(32)))
            case 2:
                words[within] = words[other]
            case 3:
                words[within] = rng.choice([0, 1, 2, 32, 64, words[3], 1 << 31, (1 << 32) - 1])
            case 4:
                words = np.delete(words, slice(at, at + size))
            case 5:
                words = np.concatenate([words[:there], words[at : at + size], words[there:]])
            case 6:
                words[at] = size << 16 | int(rng.integers(1, 400))
            case 7:
                words[rng.integers(words.size)] = rng.integers(1 << 32)
            case _:
                words = words[: rng.integers(1, words.size + 1)]
    return words


def instructions(words: Words) -> list[tuple[int, int]]:
    """Return position and length of each instruction, up to the first damaged length."""
    found, at = [], 5
    while at < words.size and (size := int(words[at]) >> 16) and at + size <= words.size:
        found.append((at, size))
        at += size
    return found


def test_a_refused_kernel_is_named(device: Device) -> None:
    module = ubridge.load_module("unary", device=device)
    with pytest.raises(NotSupportedError, match=r"kernel 'uexp_f64' has exp of f64"):
        module.get_function("uexp_f64")

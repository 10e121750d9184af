"""Random tensors: Random123's test vectors, equality across devices, and the distribution."""

from __future__ import annotations

import os
import pickle
from typing import Any

import numpy as np
import pytest

import ubridge as ub
from ubridge.random import philox
from uhal import Device
from uhal.errors import ArgumentTypeError, ArgumentValueError

# Lines "philox4x32 10" of kat_vectors in Random123 1.14: counter, key, result.
VECTORS = [
    (
        "00000000 00000000 00000000 00000000 00000000 00000000",
        "6627e8d5 e169c58d bc57ac4c 9b00dbd8",
    ),
    (
        "ffffffff ffffffff ffffffff ffffffff ffffffff ffffffff",
        "408f276d 41c83b0e a20bc7c6 6d5451fd",
    ),
    (
        "243f6a88 85a308d3 13198a2e 03707344 a4093822 299f31d0",
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
]
FLOATS = {"f8e4m3": 4, "bf16": 8, "f16": 11, "f32": 24, "f64": 53}


@pytest.mark.parametrize(("given", "expected"), VECTORS)
def test_words_are_those_of_the_paper(given: str, expected: str) -> None:
    *counter, low, high = (int(word, 16) for word in given.split())
    found = philox((counter[0], counter[1], counter[2], counter[3]), low | high << 32)
    assert found.tolist() == [int(word, 16) for word in expected.split()]


def test_the_first_words_of_a_generator(device: Device) -> None:
    words = [int(word, 16) for word in VECTORS[0][1].split()]
    assert ub.Generator(0).words(4).tolist() == words
    found = ub.rand(4, seed=0).to_numpy()
    np.testing.assert_array_equal(found, np.array([word >> 8 for word in words]) * 2.0**-24)


def test_large_calls_go_on_where_a_part_ended() -> None:
    start = 2**32 - 5
    whole = ub.Generator(7, start).words(4 * ((1 << 16) + 9))
    for counter in (0, 4, 5, 1 << 16, (1 << 16) + 8):
        one = ub.Generator(7, start + counter).words(4)
        assert whole[4 * counter : 4 * counter + 4].tolist() == one.tolist()


@pytest.mark.parametrize("dtype", FLOATS)
def test_even_numbers(dtype: str, device: Device, seed: int) -> None:
    x = ub.rand((100, 200), dtype, seed=seed)
    array = x.to_numpy().astype(np.float64)
    assert x.dtype.name == dtype and x.shape == (100, 200) and x.device == device
    assert array.min() >= 0 and array.max() < 1
    scaled = array * 2.0 ** FLOATS[dtype]
    assert (scaled == np.floor(scaled)).all()
    step = 2.0 ** -FLOATS[dtype]
    # 6 standard errors of the mean and of the share below a quarter
    assert abs(array.mean() - (1 - step) / 2) < 6 * 12**-0.5 / array.size**0.5
    assert abs((array < 0.25).mean() - 0.25) < 6 * (3 / 16 / array.size) ** 0.5


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
def test_normal_numbers(dtype: str, device: Device, seed: int) -> None:
    array = ub.randn((101, 199), dtype, seed=seed).to_numpy().astype(np.float64)
    assert np.isfinite(array).all()
    assert abs(array.mean()) < 6 / array.size**0.5
    assert abs(array.var() - 1) < 6 * (2 / array.size) ** 0.5
    assert abs((array**3).mean()) < 6 * (15 / array.size) ** 0.5
    assert abs((array**4).mean() - 3) < 6 * (96 / array.size) ** 0.5
    flat = array.ravel()
    assert abs((flat[::2][:-1] * flat[1::2]).mean()) < 6 / (flat.size // 2) ** 0.5


def test_a_seed_gives_the_same_numbers_and_a_generator_goes_on(device: Device, seed: int) -> None:
    for make in (ub.rand, ub.randn):
        first, second = make(9, seed=seed).tolist(), make(9, seed=seed).tolist()
        assert first == second != make(9, seed=seed + 1).tolist()
        source = ub.Generator(seed)
        assert make(9, seed=source).tolist() == first
        kept = pickle.loads(pickle.dumps(source))
        following = make(9, seed=source).tolist()
        assert following != first
        assert make(9, seed=kept).tolist() == following
        assert make(9, seed=ub.Generator(source.seed, kept.position)).tolist() != following
    assert ub.rand(9).tolist() != ub.rand(9).tolist()


def test_every_backend_has_the_same_numbers(host: Device, simulated_cuda: None, seed: int) -> None:
    with Device(0, backend="cuda"):
        pass
    for make in (ub.rand, ub.randn):
        for dtype in FLOATS:
            here = make((31, 51), dtype, seed=seed, device="host").to_numpy()
            there = make((31, 51), dtype, seed=seed, device="cuda").to_numpy()
            assert here.tobytes() == there.tobytes()


def test_sizes_and_shapes(device: Device) -> None:
    assert ub.rand(seed=1).shape == () and ub.randn(seed=1).shape == ()
    assert ub.rand((0, 3)).shape == (0, 3) and ub.randn(0).shape == (0,)
    source = ub.Generator(3)
    ub.rand(5, seed=source)
    assert (source.seed, source.position) == (3, 2)
    assert repr(source) == "Generator(seed=3, position=2)"


def test_a_forked_child_has_numbers_of_its_own() -> None:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, ub.random._own.words(4).tobytes())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 16) != ub.random._own.words(4).tobytes()


@pytest.mark.parametrize(
    ("attempt", "kind", "words"),
    [
        (lambda: ub.rand(3, "i32"), ArgumentTypeError, "rand: expected a float type, one of bf16"),
        (lambda: ub.randn(3, "bool"), ArgumentTypeError, "randn: expected a float type"),
        (lambda: ub.rand(3, seed=-1), ArgumentValueError, r"rand, seed: expected 0…2\*\*64-1"),
        (lambda: ub.rand(3, seed=1 << 64), ArgumentValueError, "rand, seed: expected 0"),
        (lambda: ub.randn(3, seed="x"), ArgumentTypeError, "randn, seed: expected an int, got str"),
        (lambda: ub.Generator(1.5), ArgumentTypeError, "seed: expected an int, got float"),
        (lambda: ub.Generator(1, -1), ArgumentValueError, "position: expected 0"),
        (lambda: ub.rand(-1), ArgumentValueError, "negative dimensions"),
    ],
)
def test_wrong_ones(attempt: Any, kind: type[Exception], words: str, device: Device) -> None:
    with pytest.raises(kind, match=words):
        attempt()

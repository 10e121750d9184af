"""Engram against its equations in numpy. No trained table is at hand, so weights are random."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import ubridge as ub
from tests.requirements import needed_module
from ubridge.models.engram import Engram, EngramConfig, EngramHashes, compressed
from uhal import Device
from uhal.errors import ArgumentTypeError, ArgumentValueError

Array = npt.NDArray[Any]
SMALL = EngramConfig((101, 101), heads=2, width=4, pad=0)


def hashes() -> EngramHashes:
    return EngramHashes(SMALL, np.arange(1000), 1000)


def test_numbers_are_those_of_the_published_code() -> None:
    made = hashes()
    assert made.primes[1].tolist() == [[101, 103], [107, 109]]
    assert made.primes[15].tolist() == [[113, 127], [131, 137]]
    assert made.multipliers(1).tolist() == [7593627661414631, 479593001838623, 3563315849468963]
    assert made.hashes(1, [5, 17, 999, 17]).tolist() == [
        [86, 101, 90, 63],
        [16, 23, 94, 25],
        [4, 4, 95, 19],
        [30, 53, 59, 93],
    ]
    assert made.rows(1, [5]).tolist() == [[86, 101 + 101, 204 + 90, 311 + 63]]
    assert made.rows_of_table(1) == 101 + 103 + 107 + 109


def test_rows_of_parts_are_those_of_the_whole(rng: np.random.Generator) -> None:
    made = hashes()
    tokens = [int(one) for one in rng.integers(-3, 1000, 40)]
    whole = made.rows(15, tokens)
    for begin in range(len(tokens)):
        assert made.rows(15, tokens[begin:], tokens[:begin]).tolist() == whole[begin:].tolist()
    # Python's integers: nothing wraps around.
    for at, token in enumerate(tokens):
        near = [token, *([*[0, 0], *tokens][at + 1 :: -1][:2])]
        mixed = 0
        for back, (one, factor) in enumerate(zip(near, made.multipliers(15), strict=True)):
            mixed ^= one * int(factor)
            if back:
                expected = [mixed % int(prime) for prime in made.primes[15][back - 1]]
                assert made.hashes(15, tokens)[at, 2 * back - 2 : 2 * back].tolist() == expected
    with pytest.raises(ArgumentValueError, match="expected tokens below 1000, got 1000"):
        made.rows(1, [1000])


def test_tokens_of_one_text_share_an_id() -> None:
    pieces = [
        "Été",
        "ete",
        " ETE\n",
        "ﬁ",
        "fi",
        " ",
        "\t \n",
        "",
        None,
        "\ufffd",
        "\ufffda",
        None,
        "́",
    ]
    ids, count = compressed(pieces)
    assert ids.tolist() == [0, 0, 0, 1, 1, 2, 2, 3, 4, 5, 6, 7, 8]
    assert count == 9


def test_texts_are_normal_as_by_the_tokenizers_library(rng: np.random.Generator) -> None:
    needed_module("tokenizers")
    from tokenizers import Regex, normalizers

    mark = "\ue000"
    normal = normalizers.Sequence(
        [
            normalizers.NFKC(),
            normalizers.NFD(),
            normalizers.StripAccents(),
            normalizers.Lowercase(),
            normalizers.Replace(Regex(r"[ \t\r\n]+"), " "),
            normalizers.Replace(Regex(r"^ $"), mark),
            normalizers.Strip(),
            normalizers.Replace(mark, " "),
        ]
    )
    letters = [*"aAbB \t\n.,1éÉçßŞﬁ½²ÅñÑ한글カガ가 ́ÀǼœŒΑάЙй"]
    pieces = ["".join(rng.choice(letters, int(rng.integers(1, 5)))) for _ in range(400)]
    ids, _ = compressed(pieces)
    texts = [normal.normalize_str(one) or one for one in pieces]
    first: dict[str, int] = {}
    assert ids.tolist() == [first.setdefault(one, len(first)) for one in texts]


def rms(x: Array, weight: Array, epsilon: float) -> Any:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * weight


def in_numpy(w: dict[str, Array], rows: Array, hidden: Array) -> Any:
    """The equations, for a whole text."""
    tokens, streams, width = hidden.shape
    e = rows.reshape(tokens, -1)
    key = np.einsum("te,ghe->tgh", e, w["key.weight"]) + w["key.bias"]
    epsilon = float(np.finfo(np.float32).eps)
    products = rms(key, w["key_norm"], epsilon) * rms(hidden, w["query_norm"], epsilon)
    score = products.sum(-1) / np.sqrt(width)
    gate = 1 / (1 + np.exp(-np.sign(score) * np.sqrt(np.maximum(abs(score), 1e-6))))
    v = gate[..., None] * (e @ w["value.weight"].T + w["value.bias"])[:, None]
    normed = rms(v, w["convolution_norm"], 1e-5).reshape(tokens, -1)
    padded = np.concatenate([np.zeros((9, streams * width)), normed])
    mixed = np.stack([(padded[t : t + 10 : 3] * w["convolution"].T).sum(0) for t in range(tokens)])
    return hidden + v + (mixed / (1 + np.exp(-mixed))).reshape(hidden.shape)


def made(device: Device, rng: np.random.Generator, layer: int) -> tuple[Any, ...]:
    streams, width = int(rng.integers(1, 5)), 4 * int(rng.integers(1, 5))
    each = 16
    shapes = {
        "key.weight": (streams, width, each),
        "key.bias": (streams, width),
        "value.weight": (width, each),
        "value.bias": (width,),
        "key_norm": (streams, width),
        "query_norm": (streams, width),
        "convolution_norm": (streams, width),
        "convolution": (streams * width, 4),
    }
    weights = {name: rng.standard_normal(one).astype(np.float32) for name, one in shapes.items()}
    rows = hashes().rows_of_table(layer)
    table = rng.standard_normal((rows, 4)).astype(np.float32)
    tensors = {name: ub.from_numpy(one, device=device) for name, one in weights.items()}
    wide = {name: one.astype(np.float64) for name, one in weights.items()}
    return Engram(hashes(), layer, table, tensors), table, wide, (streams, width)


def test_a_text_gets_the_numbers_of_the_equations(device: Device, rng: np.random.Generator) -> None:
    layer = int(rng.choice([1, 15]))
    engram, table, weights, sizes = made(device, rng, layer)
    tokens = [int(one) for one in rng.integers(0, 1000, int(rng.integers(1, 14)))]
    hidden = rng.standard_normal((len(tokens), *sizes)).astype(np.float32)
    exact = in_numpy(
        weights, table[hashes().rows(layer, tokens)].astype(np.float64), hidden.astype(np.float64)
    )
    # If rounding changes a score's sign, the gate jumps by half of the least score's root, 1e-3.
    bound = 4e-3 * (5 + abs(exact).max())
    with engram:
        given = ub.from_numpy(hidden, device=device)
        got, _ = engram(given, engram.fetch(tokens))
        assert abs(got.to_numpy() - exact).max() < bound
        # Read the text token by token, or in parts.
        state, found, begin = None, [], 0
        while begin < len(tokens):
            end = min(len(tokens), begin + int(rng.integers(1, 4)))
            part = ub.from_numpy(hidden[begin:end], device=device)
            answer, state = engram(part, engram.fetch(tokens[begin:end], state))
            found.append(answer.to_numpy())
            begin = end
        assert abs(np.concatenate(found) - exact).max() < bound


def test_mistakes_are_refused(host: Device, rng: np.random.Generator) -> None:
    engram, table, _, (streams, width) = made(host, rng, 1)
    with engram:
        rows = engram.fetch([1, 2])
        with pytest.raises(ArgumentValueError, match="expected hidden of"):
            engram(ub.zeros((1, streams, width), device=host), rows)
        weights = dict(engram._weights)
        with pytest.raises(ArgumentTypeError, match="table: expected f32"):
            Engram(hashes(), 1, table[1:], weights)
        with pytest.raises(ArgumentValueError, match="layer: expected one of"):
            Engram(hashes(), 2, table, weights)
        del weights["value.bias"]
        with pytest.raises(ArgumentValueError, match=r"expected value\.bias of"):
            Engram(hashes(), 1, table, weights)
    for wrong in (EngramConfig(()), EngramConfig(layers=()), EngramConfig(heads=0)):
        with pytest.raises(ArgumentValueError, match="EngramConfig"):
            EngramHashes(wrong, np.arange(10), 10)

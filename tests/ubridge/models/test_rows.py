"""Every row of the table against transformers, or against equations for models it lacks.

`judging.py` stored transformers' logits for weights from a fixed seed, and measured the change of
logits when a parameter is left out. If transformers is installed, the test draws new weights and
tokens, and transformers writes the files.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from tests.sampling import SOAK
from tests.ubridge.models import equations, judging
from tests.ubridge.models.cases import CASES, EQUATIONS, Array, drawn, prompt
from tests.ubridge.models.files import known, shapes_of, written
from tests.ubridge.models.judging import SEED, judged, judged_in_halves
from ubridge.models import Model
from uhal import Device

TOLERANCE = 2e-5
"""Tolerance of f32 logits, relative to the largest. The two forms of GELU are 1e-4 apart."""
DECIDED = 10 * TOLERANCE
CHUNKED = 40
"""Number of tokens that one call reads; later tokens are read one at a time."""
JUDGED_ANEW = tuple(CASES) if SOAK else ("llama",)


def assert_near(
    got: Array, expected: Array, told: str, least: float = 0.95, tolerance: float = TOLERANCE
) -> None:
    """Compare logits of a text, and at least a share `least` of its greedy choices."""
    skipped = np.count_nonzero(~compared(got, expected, told, tolerance))
    print(f"{told}: {skipped} of {len(expected)} greedy choices were too close to compare")
    assert skipped <= (1 - least) * len(expected), f"{told}: {skipped} of {len(expected)} skipped"


def compared(got: Array, expected: Array, told: str, tolerance: float = TOLERANCE) -> Array:
    """Compare logits, and greedy choices where the two largest differ; return where they do."""
    largest = np.abs(expected).max()
    error = float(np.abs(got - expected).max() / largest)
    assert error <= tolerance, f"{told}: {error:.1e} of the largest logit"
    best = np.sort(expected, axis=-1)
    apart = max(DECIDED, 2 * tolerance) * largest
    decided: Array = best[..., -1] - best[..., -2] > apart
    np.testing.assert_array_equal(got.argmax(-1)[decided], expected.argmax(-1)[decided], told)
    return decided


def assert_read_alike(
    model: Model, tokens: list[int], expected: Array, told: str, tolerance: float = TOLERANCE
) -> None:
    """Read tokens at once, then in a chunk followed by single tokens."""
    assert_near(model(tokens).to_numpy(), expected, told, tolerance=tolerance)
    rope = model.design.rope
    if rope is not None and rope.kind == "dynamic":
        # Dynamic angles depend on the text's length at the time a token is read.
        return
    with model.cache(300) as cache:
        rows = [model.logits(tokens[:CHUNKED], cache).to_numpy()]
        rows += [model.logits([one], cache).to_numpy() for one in tokens[CHUNKED:]]
        assert cache.tokens == tokens
    # The check above already counted close logits of these rows.
    compared(np.stack(rows), expected[CHUNKED - 1 :], f"{told}, one by one", tolerance)


@pytest.mark.drawn(1 / 3)
@pytest.mark.parametrize("case", CASES)
def test_logits_are_those_of_transformers(host: Device, tmp_path: Path, case: str) -> None:
    config, weights, expected = known(case)
    model = Model.load(written(tmp_path, config, weights))
    assert_read_alike(model, prompt(SEED), expected, case)


@pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None, reason="transformers is not installed"
)
@pytest.mark.parametrize("case", JUDGED_ANEW)
def test_fresh_weights_in_files_of_transformers(
    host: Device, tmp_path: Path, case: str, seed: int
) -> None:
    expected = judged(case, seed, tmp_path)
    assert_read_alike(Model.load(tmp_path), prompt(seed), expected, case)


@pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None, reason="transformers is not installed"
)
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("case", JUDGED_ANEW)
def test_halves_err_at_most_twice_as_much_as_torch(
    host: Device, tmp_path: Path, case: str, dtype: str, seed: int
) -> None:
    exact = judged(case, seed, tmp_path)
    torchs = judged_in_halves(case, seed, dtype)
    model = Model.load(tmp_path, dtype=dtype)
    if model.design.experts is not None:
        pytest.skip("a rounding that chooses another expert is no error of arithmetic")
    got = model(prompt(seed)).to_numpy()
    ours, theirs = (float(np.sqrt(np.mean((one - exact) ** 2))) for one in (got, torchs))
    assert ours <= 2 * theirs, (case, ours, theirs)


@pytest.mark.parametrize("case", EQUATIONS)
def test_models_that_transformers_does_not_have(
    host: Device, tmp_path: Path, case: str, seed: int, rng: np.random.Generator
) -> None:
    config = EQUATIONS[case]
    weights = {name: drawn(name, shape, seed) for name, shape in shapes_of(case, config).items()}
    wide = {name: values.astype(np.float64) for name, values in weights.items()}
    tokens = prompt(seed)
    expected = getattr(equations, case)(config, wide.__getitem__, tokens)
    model = Model.load(written(tmp_path, config, weights))
    # f32 loses precision where a sum cancels before a norm, about as much as rounding the weights.
    moves = []
    for _ in range(3):
        rounded = {
            name: values * (1 + 2.0**-24 * rng.uniform(-1, 1, values.shape))
            for name, values in wide.items()
        }
        moved = getattr(equations, case)(config, rounded.__getitem__, tokens)
        moves.append(np.abs(moved - expected).max() / np.abs(expected).max())
    assert_read_alike(model, tokens, expected, case, max(TOLERANCE, 16 * max(moves)))
    # A model without one of its weights must give other logits.
    for name, values in weights.items():
        without = {**wide, name: np.zeros_like(wide[name])}
        if "norm" in name or ".ln" in name:
            without[name] = np.ones_like(wide[name]) if values.ndim == 1 else without[name]
        moved = getattr(equations, case)(config, without.__getitem__, tokens[:24])
        assert np.abs(moved - expected[:24]).max() >= 0.01 * np.abs(expected).max(), name


def test_yi_is_llama(host: Device, tmp_path: Path) -> None:
    config, weights, expected = known("yi")
    assert config["model_type"] == "llama"
    assert_near(
        Model.load(written(tmp_path, config, weights))(prompt(SEED)).to_numpy(), expected, "yi"
    )


def test_kept_logits_that_were_changed_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    logits = np.load(judging.DATA / "llama.npy")
    (tmp_path / "llama.json").write_bytes((judging.DATA / "llama.json").read_bytes())
    monkeypatch.setattr(judging, "DATA", tmp_path)
    np.save(tmp_path / "llama.npy", logits)
    judging.kept("llama")
    logits[tuple(rng.integers(0, logits.shape))] += np.float32(1e-3)
    np.save(tmp_path / "llama.npy", logits)
    with pytest.raises(ValueError, match="expected sha256"):
        judging.kept("llama")

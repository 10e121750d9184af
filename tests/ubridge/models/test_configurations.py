"""Each row of the table, with each key of its configuration made wrong in every way.

A wrong value is null, missing, of another type or out of range. The model is then read, or refused
by an error of ours that names the file and the key.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ubridge as ub
from tests.sampling import SOAK
from tests.ubridge.models.cases import CASES, EQUATIONS, prompt
from tests.ubridge.models.files import known, written
from tests.ubridge.models.judging import SEED
from ubridge.files.errors import FileWarning
from ubridge.files.settings import Settings
from ubridge.models import Model, rwkv5
from ubridge.models.architecture import Architecture
from ubridge.models.making import CONFIGS
from ubridge.models.positions import Rope
from ubridge.models.sharding import Share
from ubridge.models.sources import open_source
from ubridge.models.table import ROWS, architecture_of, spelled_alike
from uhal import Device
from uhal.errors import NotSupportedError

WRONG: tuple[Any, ...] = (
    *("64", "", True, 0.5, 0, -1, 1, 3, 7, 1 << 31, 1 << 40, 1 << 63, -(1 << 70), 1e300),
    *(float("nan"), float("inf"), [], [None], ["a"], [0.0], [1 << 40], {}, {"a": None}),
)
MISSING = object()
pytestmark = pytest.mark.filterwarnings("error")
WHERE = "folder/config.json"
BOUNDS = {
    "num_hidden_layers": (100, "of tensors"),
    "num_attention_heads": (1000, "of rows"),
    "num_experts": (1000, "of rows"),
}


def design_of(config: Mapping[str, Any]) -> tuple[Architecture, Settings]:
    """Read a configuration and return the design and settings that it determines."""
    told = Settings(WHERE, config)
    name = config["model_type"]
    if name == "rwkv5":
        settings = spelled_alike(told).read_as({}, bounds=BOUNDS)
        design: Architecture = rwkv5.design_of(settings)
    else:
        settings = spelled_alike(told, ROWS[name].defaults).read_as({}, bounds=BOUNDS)
        design = architecture_of(name, settings)
    for _ in design.tensors():
        pass
    assert design.state_bytes(10, 4) > 0
    if design.rope is not None and design.rope.width <= 1024:
        for length in (1, 5):
            cos, sin = design.rope.rows(0, length, length)
            assert np.isfinite(cos).all() and np.isfinite(sin).all()
        design.rope.growing_rows(3)
    return design, settings


ROPES = {
    case: {"model_type": name, **changes}
    for case, (name, changes) in CASES.items()
    if case in ("llama31", "llama_linear", "llama_dynamic", "llama_yarn", "phi_qk", "phi3_long")
}
ALL: dict[str, dict[str, Any]] = {
    **{name: {"model_type": name, **config} for name, config in CONFIGS.items()},
    **{f"{name} of equations": dict(config) for name, config in EQUATIONS.items()},
    **(
        {case: {"model_type": name, **more} for case, (name, more) in CASES.items()} if SOAK else {}
    ),
}


def drawn_of(rng: np.random.Generator) -> Sequence[Any]:
    """Return "missing", null, and some wrong values; in a soak all wrong values."""
    chosen = range(len(WRONG)) if SOAK else rng.permutation(len(WRONG))[:8]
    return (MISSING, None, *(WRONG[one] for one in chosen))


@pytest.mark.parametrize("case", ALL)
def test_a_wrong_value_is_named_with_its_file(case: str, rng: np.random.Generator) -> None:
    config = ALL[case]
    _, settings = design_of(config)
    keys = settings.asked() - {"model_type"}
    assert keys >= {"vocab_size", "eos_token_id"}
    for key in sorted(keys):
        for value in drawn_of(rng):
            changed = {**config, key: value}
            if value is MISSING:
                changed.pop(key, None)
            named(changed, key, value)


@pytest.mark.parametrize("case", ROPES)
def test_a_wrong_value_of_angles_is_named(case: str, rng: np.random.Generator) -> None:
    config = ROPES[case]
    _, settings = design_of(config)
    kept = config["rope_parameters"]
    for key in sorted(settings.section("rope_parameters").asked()):
        for value in drawn_of(rng):
            changed = {**kept, key: value}
            if value is MISSING:
                changed.pop(key, None)
            named({**config, "rope_parameters": changed}, key, value)
    for value in WRONG:
        named({**config, "rope_parameters": None, "rope_scaling": value}, "rope_scaling", value)


def named(config: dict[str, Any], key: str, value: Any) -> None:
    try:
        design_of(config)
    except (ub.InvalidFileError, NotSupportedError) as error:
        words = str(error)
        assert words.startswith(f"{WHERE}: "), words
        # A number may conflict with another number, and a value may require another key.
        is_named = key in words or "expected a value" in words
        assert is_named or isinstance(value, (int, float)), (key, value, words)
    except Exception as error:
        raise AssertionError(f"{key}: {value!r}") from error


# -- defaults, and keys that are not read ----------------------------------------------------------


def changed(name: str, **changes: Any) -> Architecture:
    return design_of({"model_type": name, **CONFIGS[name], **changes})[0]


def without(name: str, key: str) -> Architecture:
    config = {"model_type": name, **CONFIGS[name]}
    del config[key]
    return design_of(config)[0]


def test_what_a_configuration_leaves_out_is_as_in_transformers() -> None:
    assert changed("mixtral").rope.base == 1e6  # type: ignore[union-attr]
    assert changed("mixtral", rope_theta=5.0).rope.base == 5.0  # type: ignore[union-attr]
    expected = {
        **{"llama": 2048, "mistral": 131072, "mixtral": 131072, "qwen2": 32768, "qwen3": 32768},
        **{"qwen3_moe": 32768, "phi": 2048, "phi3": 4096, "stablelm": 4096, "starcoder2": 4096},
        **{"falcon": 2048, "glm": 131072, "glm4": 131072, "gemma": 8192, "gemma2": 8192},
    }
    for name, positions in expected.items():
        assert without(name, "max_position_embeddings").context == positions, name
    factors = [1.0] * 8
    rope = {"type": "longrope", "short_factor": factors, "long_factor": factors}
    config = {"model_type": "phi3", **CONFIGS["phi3"], "rope_scaling": rope}
    del config["max_position_embeddings"]
    longrope = design_of(config)[0].rope
    assert longrope is not None and (longrope.context, longrope.trained) == (4096, 4096)
    assert without("mixtral", "num_experts_per_tok").experts.used == 2  # type: ignore[union-attr]


def test_longrope_takes_its_long_divisors_beyond_the_trained_length() -> None:
    trained = 16
    rope = {"type": "longrope", "short_factor": [1.0] * 8, "long_factor": [4.0] * 8}
    config = {"model_type": "phi3", **CONFIGS["phi3"], "rope_scaling": rope}
    config |= {"max_position_embeddings": 64, "original_max_position_embeddings": trained}
    longrope = design_of(config)[0].rope
    assert longrope is not None
    for length, divisor in ((2, 1), (trained, 1), (trained + 1, 4), (64, 4)):
        cos, sin = longrope.rows(0, length, length)
        assert np.arctan2(sin, cos)[1, 0] == pytest.approx(1 / divisor), length


@pytest.mark.parametrize("truncate", [None, True, False])
def test_yarns_bounds_are_integers_unless_the_file_says_no(truncate: bool | None) -> None:
    width, base, trained, factor, fast, slow = 64, 10000.0, 1000, 4.0, 32.0, 1.0
    told = {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": trained}
    if truncate is not None:
        told["truncate"] = truncate
    config = Settings(WHERE, {"rope_parameters": told})
    rope = Rope.of(config, width, int(trained * factor), 1.0)
    bounds = [
        width * np.log(trained / (turns * 2 * np.pi)) / (2 * np.log(base)) for turns in (fast, slow)
    ]
    # neither bound is close to a whole number, so rounding a bound matters
    assert all(0.05 < bound % 1 < 0.95 for bound in bounds)
    low, high = bounds if truncate is False else (np.floor(bounds[0]), np.ceil(bounds[1]))
    pairs = np.arange(width // 2)
    interpolated = np.clip((pairs - low) / (high - low), 0, 1)
    steps = base ** (-2 * pairs / width)
    expected = steps / factor * interpolated + steps * (1 - interpolated)
    cos, _ = rope.rows(1, 1, 1)
    assert cos[0] / rope.magnitude == pytest.approx(np.cos(expected), abs=2e-6)


@pytest.mark.parametrize("count", [2.0, 2.5, 4.0, 1e300, "4"])
def test_a_count_of_experts_is_an_integer(count: Any) -> None:
    for name, key in (("mixtral", "num_local_experts"), ("qwen3_moe", "num_experts")):
        for one in (key, "num_experts_per_tok"):
            if one not in CONFIGS[name] and key == one:
                one = "num_experts"
            with pytest.raises(ub.InvalidFileError, match=f"{one}: expected an integer"):
                changed(name, **{one: count})


def test_windows_and_activations_of_experts() -> None:
    windows = {"sliding_window": 16, "max_window_layers": 1}
    assert changed("qwen3_moe", **windows).windows == ()
    assert changed("qwen3_moe", **windows, use_sliding_window=True).windows == (16, 16)
    assert changed("qwen3", **windows, use_sliding_window=True).windows == (0, 16)
    assert changed("mistral").windows == (4096, 4096)
    assert changed("mistral", sliding_window=None).windows == ()
    assert changed("mistral", sliding_window=1).windows == (1, 1)
    assert changed("mistral", sliding_window=0).windows == ()
    kinds = ["sliding_attention", "full_attention"]
    assert changed("mistral", layer_types=kinds).windows == (4096, 0)
    for name in ("mixtral", "qwen3_moe"):
        assert changed(name, hidden_act="gelu").activation == "gelu_erf"


@pytest.mark.parametrize("case", ["mixtral", "qwen3_moe"])
def test_experts_compute_with_the_activation_of_the_file(
    host: Device, tmp_path: Path, case: str
) -> None:
    config, weights, expected = known(case)
    got = Model.load(written(tmp_path, {**config, "hidden_act": "relu"}, weights))
    text = prompt(SEED)[:8]
    assert np.abs(got(text).to_numpy() - expected[:8]).max() > 0.05 * np.abs(expected).max()
    with got.cache(8) as cache:
        rows = [got.logits([one], cache).to_numpy() for one in text]
    np.testing.assert_allclose(np.stack(rows), got(text).to_numpy(), atol=1e-4)


def test_keys_that_are_not_read_are_named_once(host: Device, tmp_path: Path) -> None:
    config, weights, _ = known("llama")
    more = {
        "clip_qkv": 8.0,
        "use_cache": True,
        "resid_pdrop": 0.1,
        "some_flag": False,
        "other": None,
    }
    rope = {"rope_type": "linear", "factor": 2.0, "frobnication": 3}
    folder = written(tmp_path, {**config, **more, "rope_parameters": rope}, weights)
    with pytest.warns(FileWarning) as told:
        Model.load(folder)
    (line,) = (str(one.message) for one in told)
    path = folder / "config.json"
    assert line.startswith(f"{path}: ") and line.count("\n") == 0
    assert line.endswith("clip_qkv = 8.0, rope_parameters.frobnication = 3")


def test_values_that_only_one_form_is_read_of_are_refused() -> None:
    for key, value in (("rmsnorm", False), ("post_layer_norm", False), ("add_bias_linear", True)):
        with pytest.raises(NotSupportedError, match=f"^{WHERE}: {key}: expected"):
            changed("chatglm", **{key: value})


# -- heads beside embeddings ---------------------------------------------------------------------


def test_a_head_in_the_file_wins(host: Device, tmp_path: Path, recwarn: Any) -> None:
    config, weights, _ = known("llama")
    expected = Model.load(written(tmp_path, config, weights))(prompt(SEED)).to_numpy()
    assert not recwarn.list
    folder = written(tmp_path, {**config, "tie_word_embeddings": True}, weights)
    with pytest.warns(FileWarning, match=r"lm_head.weight differs from the embedding"):
        model = Model.load(folder)
    np.testing.assert_array_equal(model(prompt(SEED)).to_numpy(), expected)


def test_one_copy_is_kept_of_a_head_that_is_the_embedding(
    host: Device, tmp_path: Path, recwarn: Any
) -> None:
    config, weights, expected = known("llama_tied")
    embedding = weights["model.embed_tokens.weight"]
    folder = written(tmp_path, config, {**weights, "lm_head.weight": embedding})
    model = Model.load(folder)
    assert model.design.is_tied and not recwarn.list
    assert np.abs(model(prompt(SEED)).to_numpy() - expected).max() <= 1e-4 * np.abs(expected).max()


# -- declared counts are bounded by the tensors ----------------------------------------------------


@pytest.mark.parametrize(
    ("case", "key"),
    [
        *(("llama", key) for key in ("num_hidden_layers", "num_attention_heads")),
        *(("stablelm12b", key) for key in ("num_hidden_layers", "num_attention_heads")),
        ("mixtral", "num_local_experts"),
        ("qwen3_moe", "num_local_experts"),
    ],
)
def test_nothing_is_made_of_a_count_that_files_cannot_hold(
    host: Device, tmp_path: Path, case: str, key: str
) -> None:
    config, weights, _ = known(case)
    for count in (1 << 31, 10**8):
        folder = written(tmp_path, {**config, key: count}, weights)
        with pytest.raises(ub.InvalidFileError, match=rf"config\.json: {key}: .*, for "):
            open_source(folder, host)


def test_the_configuration_of_generation_is_named(host: Device, tmp_path: Path) -> None:
    folder = written(tmp_path, *known("llama")[:2])
    for wrong in (
        '{"eos_token_id": "2"}',
        '{"eos_token_id": 0.5}',
        "[1]",
        "{",
        '{"eos_token_id": 97}',
    ):
        (folder / "generation_config.json").write_text(wrong)
        with pytest.raises(ub.InvalidFileError, match=r"generation_config\.json: "):
            Model.load(folder)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": None}))
    assert Model.load(folder).end_tokens == (2,)


@pytest.mark.parametrize("vocabulary", [64, 65, 67])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_shares_of_ranks_cover_a_decoder(ranks: int, vocabulary: int) -> None:
    changes = {"model_type": "llama", "vocab_size": vocabulary}
    design, _ = design_of({**CONFIGS["llama"], **changes})
    unit = design.inner // 8
    shares = [Share(design, rank, ranks, unit) for rank in range(ranks)]
    rows = -(-vocabulary // ranks)
    starts = [min(rank * rows, vocabulary - rows) for rank in range(ranks)]
    assert [one.vocabulary for one in shares] == [(start, start + rows) for start in starts]
    # the last rank's rows reach the end, and no row is left out
    assert shares[-1].vocabulary[1] == vocabulary
    assert {row for one in shares for row in range(*one.vocabulary)} == set(range(vocabulary))
    for ranges, whole in (
        ([one.heads for one in shares], design.heads),
        ([one.inner for one in shares], design.inner),
    ):
        assert [item for one in ranges for item in range(*one)] == list(range(whole))
    assert all((stop - start) % unit == 0 for start, stop in (one.inner for one in shares))
    head = shares[-1].cut("head.weight")
    assert head is not None and head.shape((vocabulary, design.hidden)) == (rows, design.hidden)

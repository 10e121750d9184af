"""Folders of models as GGUF files: this package and llama.cpp compute the folder's logits."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ubridge as ub
from tests.ubridge.models.cases import EQUATIONS, drawn, prompt
from tests.ubridge.models.files import known, shapes_of, written
from tests.ubridge.models.gguf_judging import (
    NAMES,
    SEED,
    digest_of,
    kept_of,
    model_of,
    tokens_of,
)
from tests.ubridge.models.test_gguf_models import wide_weights
from tests.ubridge.models.test_rows import compared
from ubridge.files.__main__ import main
from ubridge.models import Model
from ubridge.models.gguf_export import write_model
from ubridge.models.table import ROWS
from ubridge.quantized import QuantizedWeight
from ubridge.recipes import recipe_of
from uhal import Device
from uhal.errors import NotSupportedError

NEARER = 5e-4
"""Tolerance relative to the largest logit, for llama.cpp's logits: it rounds GELU to f16."""


def test_every_row_of_llama_cpp_has_a_case() -> None:
    judged = {
        (EQUATIONS[one] if one in EQUATIONS else known(one)[0])["model_type"] for one in NAMES
    }
    assert judged == {name for name, row in ROWS.items() if row.gguf}


@pytest.mark.parametrize("case", NAMES)
def test_a_written_file_is_the_model_of_the_folder(
    host: Device, tmp_path: Path, case: str, seed: int
) -> None:
    config, weights = model_of(case, seed)
    folder, out = written(tmp_path, config, weights), tmp_path / "model.gguf"
    write_model(folder, out)
    # Before the shortest window ends, and before dynamic angles grow.
    tokens = tokens_of(case, seed)
    expected, model = Model.load(folder)(tokens).to_numpy(), Model.load(out)
    got = model(tokens).to_numpy()
    assert set(model.end_tokens) == {2}
    rope = Model.load(folder).design.rope
    is_turned = ROWS[config["model_type"]].gguf == "llama"
    if is_turned or (rope is not None and rope.kind != "default"):
        # Pairs in another order are added in another order; files have rounded factors of angles.
        compared(got, expected, case)
    else:
        np.testing.assert_array_equal(got, expected, case)


@pytest.mark.parametrize("case", NAMES)
def test_logits_are_those_that_llama_cpp_computed(host: Device, tmp_path: Path, case: str) -> None:
    path = tmp_path / "model.gguf"
    write_model(written(tmp_path, *model_of(case, SEED)), path)
    digest, expected = kept_of(case)
    assert digest_of(path) == digest, "run tests.ubridge.models.gguf_judging again"
    model = Model.load(path)
    tolerance = 2e-5 if model.design.activation == "silu" else NEARER
    compared(model(tokens_of(case, SEED)).to_numpy(), expected, case, tolerance)


@pytest.mark.parametrize("format", ["q8_0", "Q3_K_M", "Q4_K_M", "Q5_K_M"])
def test_a_quantized_file_is_the_model_quantized_at_load(
    host: Device, tmp_path: Path, format: str, seed: int
) -> None:
    config, weights = wide_weights(seed)
    config["model_type"] = "qwen2"
    for name in [one for one in weights if re.search(r"[qkv]_proj\.weight$", one)]:
        bias = name.replace("weight", "bias")
        weights[bias] = drawn(bias, weights[name].shape[:1], seed)
    folder, out = written(tmp_path, config, weights), tmp_path / "model.gguf"
    assert main(["convert", str(folder), str(out), "--format", format]) == 0
    expected = Model.load(folder, quantize=format)(prompt(seed)).to_numpy()
    np.testing.assert_array_equal(Model.load(out)(prompt(seed)).to_numpy(), expected)
    assert ub.load(out).metadata["general.file_type"] == recipe_of(format).file_type


def test_rows_of_blocks_are_turned_like_dense_rows(host: Device, tmp_path: Path, seed: int) -> None:
    folder = written(tmp_path, *wide_weights(seed))
    dense, quantized = tmp_path / "dense.gguf", tmp_path / "quantized.gguf"
    write_model(folder, dense)
    write_model(folder, quantized, "q4_K")
    values, blocks = ub.load(dense), ub.load(quantized)
    for name in blocks:
        if isinstance(blocks[name], QuantizedWeight):
            given = values[name]
            assert isinstance(given, ub.DeviceTensor)
            wanted = QuantizedWeight.from_numpy(given.to_numpy(), "q4_K").blocks.to_numpy()
            assert wanted.tobytes() == blocks.raw(name).tobytes(), name
    assert blocks.entries["blk.0.attn_q.weight"].kind_name == "q4_K"


# -- what such files cannot say ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "more", "told"),
    [
        ("falcon_rw", {}, r"GGUF files of falcon mean \w+ = "),
        ("gemma2", {}, "scale = 0.204"),
        ("qwen3_moe", {}, "experts = "),
        ("phi_qk", {}, "qk_norm = '', the folder's model has 'layer'"),
        ("llama", {"hidden_act": "gelu"}, "activation = 'silu', the folder's model has 'gelu_erf'"),
        ("rwkv5", {}, "a model that llama.cpp has, one of chatglm, .*got rwkv5"),
    ],
)
def test_another_model_is_refused_and_nothing_is_written(
    host: Device, tmp_path: Path, case: str, more: Mapping[str, Any], told: str
) -> None:
    if case in EQUATIONS:
        config = dict(EQUATIONS[case])
        weights = {n: drawn(n, shape, SEED) for n, shape in shapes_of(case, config).items()}
    else:
        config, weights, _ = known(case)
    folder = written(tmp_path, {**config, **more}, weights)
    with pytest.raises(NotSupportedError, match=told):
        write_model(folder, tmp_path / "model.gguf")
    assert not list(tmp_path.glob("*.gguf"))


@pytest.mark.parametrize(
    ("case", "told"),
    [
        ("mistral01", "no sliding window for llama; behind the first 20 tokens"),
        ("starcoder2", "no sliding window for starcoder2; behind the first 24 tokens"),
        ("llama_dynamic", "of more than 40 tokens differ"),
    ],
)
def test_texts_with_other_logits_are_told(
    host: Device, tmp_path: Path, case: str, told: str
) -> None:
    folder = written(tmp_path, *known(case)[:2])
    assert any(told in one for one in write_model(folder, tmp_path / "model.gguf"))


def test_the_command_names_what_it_needs(
    host: Device, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = written(tmp_path, *known("llama")[:2])
    out = tmp_path / "model.gguf"
    assert main(["convert", str(folder), str(out), "--format", "q9"]) == 1
    assert "expected one of q4_0, " in capsys.readouterr().err
    assert main(["convert", str(folder / "model.safetensors"), str(out), "--format", "q4_K"]) == 1
    assert "convert: --format expected a model's folder" in capsys.readouterr().err
    assert not out.exists()
    assert main(["convert", str(folder), str(out)]) == 0
    assert "there is no tokenizer, so the GGUF file has none" in capsys.readouterr().err

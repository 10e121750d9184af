"""The parts of a LLaMA layer on every backend: right results pass, wrong results fail."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.sampling import rounds
from tests.ubridge.op_rows import OP_ROWS, row_of
from uhal import Device

DEVICES = tuple(row.name for row in OP_ROWS)
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PARTS = (
    *("cache", "cast", "embedding", "softmax", "rmsnorm", "maskfill", "concat", "matmul", "block"),
    *("attention", "narrow", "rotary_embedding"),
)


@pytest.fixture(scope="module")
def program() -> Iterator[ModuleType]:
    """The example as a module that can import its neighbours."""
    path = EXAMPLES / "component_test.py"
    specification = importlib.util.spec_from_file_location("component_test", path)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXAMPLES))
        specification.loader.exec_module(module)
        yield module
    del sys.modules["llama_layer"]


@pytest.fixture
def options(device: Device) -> list[str]:
    row_of(device.backend).require_images()
    return ["--backend", device.backend, "--device", str(device.ordinal)]


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_every_part_passes(
    program: ModuleType, options: list[str], dtype: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(rounds(1, 30)):
        status = program.main([*options, "--dtype", dtype])
        captured = capsys.readouterr()
        assert status == 0, captured.out + captured.err
        lines = captured.out.splitlines()
        assert lines[1].startswith(f"{dtype}, random weights: --seed ")
        said = [line.partition("!")[0] for line in lines[2:-1]]
        assert said == [f"Test {part} passed" for part in PARTS]
        assert lines[-1] == "12 of 12 passed."


def test_a_seed_repeats_its_errors(
    program: ModuleType, host: Device, seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs = []
    # Errors have two digits: two seeds may have an equal one, but not all of six.
    parts = ["softmax", "rmsnorm", "matmul", "block", "attention", "rotary_embedding"]
    for each in (seed, seed, seed + 1):
        assert program.main(["--backend", "host", "--seed", str(each), *parts]) == 0
        outputs.append(capsys.readouterr().out.splitlines()[2:])
    assert outputs[0] == outputs[1] != outputs[2]


WRONG = {
    "softmax": lambda right: lambda x, axis=-1: right(x, axis) * 1.000003,
    "rms_norm": lambda right: lambda x, weight, epsilon: right(x, weight, epsilon + 1e-3),
    "rope": lambda right: lambda x, cos, sin, **how: right(x, cos, -sin, **how),
    "attention": lambda right: lambda *qkv, causal=False, mask=None: right(*qkv, mask=mask),
    "kv_concat": lambda right: lambda x, y, axis: right(y, x, axis),
    "masked_fill": lambda right: lambda x, mask, value: right(x, ~mask, value),
    "silu_mul": lambda right: lambda gate, up: right(up, gate),
    "embedding": lambda right: lambda ids, table: right(ids, table) + 1e-6,
    "cos": lambda right: lambda x: right(x + 1e-4),
    "cat": lambda right: lambda tensors, axis: right(tensors[::-1], axis),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_operation_is_exit_status_1(
    program: ModuleType,
    host: Device,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(program.ub, name, WRONG[name](getattr(program.ub, name)))
    assert program.main(["--backend", "host"]) == 1
    captured = capsys.readouterr()
    assert " FAILED: " in captured.err
    assert "12 of 12" not in captured.out


def test_nan_shapes_and_infinities_are_errors(program: ModuleType, host: Device) -> None:
    import ubridge as ub

    def error(got: Any, expected: Any) -> float:
        result = program.Result("x", ub.asarray(got, "f32"), np.asarray(expected, np.float64))
        return float(program.error_of(result))

    assert error([1.0, -2.0], [1.0, -2.0]) == 0
    assert error([1.0, -2.5], [1.0, -2.0]) == 0.25
    assert error([2.5], [0.0]) == 2.5
    assert np.isnan(error([np.nan, 1.0], [1.0, 1.0]))
    assert error([1.0], [np.inf]) == error([1.0, 2.0], [1.0]) == np.inf
    assert error([np.inf, 1.0], [np.inf, 1.0]) == 0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["softmaxx"], "no part 'softmaxx'; there are cache, cast"),
        (["--dtype", "f64"], "invalid choice: 'f64'"),
        (["--seed", "-1"], "a seed is not negative"),
    ],
)
def test_wrong_options_are_exit_status_2(
    program: ModuleType, wrong: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        program.main(wrong)
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


def test_no_such_device_is_exit_status_3(
    program: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.main(["--backend", "host", "--device", "999"]) == 3
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err


# -- weights of a model --------------------------------------------------------------------------


def a_model(
    program: ModuleType,
    folder: Path,
    seed: int,
    *,
    without: str = "",
    head_width: int = 0,
    says: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Write a small model as Hugging Face does: two files, bf16 and f32."""
    safetensors = pytest.importorskip("safetensors.numpy")
    import ml_dtypes

    model = program.Model(
        hidden=24, heads=4, kv_heads=2, inner=40, vocabulary=31, epsilon=1e-6, head_width=head_width
    )
    named = {
        name if "embed" in name else f"layers.0.{name}": values
        for name, values in program.random_weights(model, seed).items()
    }
    tensors = {f"model.{name}.weight": values for name, values in named.items() if name != without}
    tensors["model.layers.1.mlp.up_proj.weight"] = np.zeros((40, 24))
    names = sorted(tensors)
    for part, (some, dtype) in enumerate(
        ((names[::2], ml_dtypes.bfloat16), (names[1::2], np.float32))
    ):
        chosen = {name: tensors[name].astype(dtype) for name in some}
        safetensors.save_file(chosen, folder / f"model-{part}.safetensors")
    config = {
        "hidden_size": 24,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 40,
        "vocab_size": 31,
        "rms_norm_eps": 1e-6,
        **({"rope_theta": 500000.0} if says is None else says),
    }
    (folder / "config.json").write_text(json.dumps(config))
    return config


def test_weights_of_a_model(
    program: ModuleType,
    options: list[str],
    tmp_path: Path,
    seed: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    a_model(program, tmp_path, seed)
    model, weights = program.local_weights(tmp_path)
    assert (model.width, model.rope.base, model.epsilon) == (6, 500000.0, 1e-6)
    expected = program.random_weights(program.Model(24, 4, 2, 40, 31), seed)
    for name, values in expected.items():
        np.testing.assert_allclose(weights[name], values, 2**-8)
    assert program.main([*options, "--local-weights", str(tmp_path)]) == 0
    assert f"f32, weights of {tmp_path}" in capsys.readouterr().out


SCALED = {
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


@pytest.mark.parametrize(
    "says",
    [
        {
            "head_dim": 10,
            "rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5, **SCALED},
            "max_position_embeddings": 131072,
        },
        {
            "head_dim": None,
            "rope_theta": 5e5,
            "rope_scaling": {"type": "llama3", **SCALED},
        },
        {
            "rope_parameters": {"rope_type": "default", "rope_theta": 5e5},
            "rope_scaling": None,
        },
        {"rope_theta": 5e5, "rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    ],
    ids=["new", "old", "new plain", "old linear"],
)
def test_configurations_of_either_form(
    program: ModuleType, options: list[str], tmp_path: Path, seed: int, says: dict[str, Any]
) -> None:
    """Old and new configurations of rotary angles agree with a rule that computes one pair at a
    time."""
    head_width = says.get("head_dim") or 0
    a_model(program, tmp_path, seed, head_width=head_width, says=says)
    model, weights = program.local_weights(tmp_path)
    assert model.width == (head_width or 6)
    assert weights["self_attn.o_proj"].shape == (24, 4 * model.width)
    told = {**(says.get("rope_parameters") or {}), **(says.get("rope_scaling") or {})}
    expected = []
    for pair in range(model.width // 2):
        step = 5e5 ** (-2 * pair / model.width)
        length = 2 * np.pi / step
        kind = told.get("rope_type") or told.get("type")
        if kind == "linear" or (kind == "llama3" and length > 64 / 1):
            step /= told["factor"]
        elif kind == "llama3" and length >= 64 / 4:
            smooth = (64 / length - 1) / (4 - 1)
            step = (1 - smooth) * step / told["factor"] + smooth * step
        expected.append(step)
    np.testing.assert_allclose(model.rope.steps(model.width), expected, 1e-12)
    assert program.main([*options, "--local-weights", str(tmp_path)]) == 0


def test_what_a_folder_lacks_is_said(
    program: ModuleType,
    host: Device,
    tmp_path: Path,
    seed: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def said() -> str:
        assert program.main(["--backend", "host", "--local-weights", str(tmp_path)]) == 3
        captured = capsys.readouterr()
        assert captured.out == ""
        return captured.err

    config = a_model(program, tmp_path, seed, without="layers.0.mlp.up_proj")
    assert (
        "expected model.layers.0.mlp.up_proj.weight in its *.safetensors, of which there are 2"
        in said()
    )
    config = a_model(program, tmp_path, seed)
    (tmp_path / "config.json").write_text(json.dumps({**config, "vocab_size": 30}))
    assert "model.embed_tokens.weight of shape (30, 24) by config.json, got (31, 24)" in said()
    (tmp_path / "config.json").write_text('{"hidden_size": 24}')
    assert "config.json: no LLaMA model's: KeyError('num_attention_heads')" in said()
    a_model(program, tmp_path, seed, says={"rope_scaling": {"rope_type": "yarn"}})
    assert "rope_type: expected default, linear or llama3, got 'yarn'" in said()
    (tmp_path / "config.json").unlink()
    assert "config.json: expected a LLaMA model's config.json" in said()
    a_model(program, tmp_path, seed)
    (tmp_path / "model-0.safetensors").write_bytes(b"\xff" * 64)
    assert "model-0.safetensors: " in said()
    monkeypatch.setitem(sys.modules, "safetensors", None)
    assert said() == "--local-weights needs the package safetensors: pip install safetensors\n"

"""The demo network end to end: its numbers, its options and its exit status."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tests.sampling import rounds
from uhal import Device, Stream

DEVICES = ("host", "cuda-sim", "rocm-sim", "tops-sim", "opencl", "webgpu")
PROGRAM = Path(__file__).resolve().parents[2] / "examples" / "network_test.py"
WEIGHTS = ("w1", "w2", "w3", "w4", "w5")


@pytest.fixture(scope="module")
def program() -> ModuleType:
    specification = importlib.util.spec_from_file_location("network_test", PROGRAM)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    # Register the module now: dataclasses look it up during its execution.
    sys.modules[module.__name__] = module
    specification.loader.exec_module(module)
    return module


@pytest.fixture
def options(device: Device) -> list[str]:
    return ["--backend", device.backend, "--device", str(device.ordinal)]


def result(program: ModuleType, inputs: dict[str, np.ndarray], device: Device) -> np.ndarray:
    with Stream(device=device) as stream:
        return program.forward(inputs, stream)[-1].to_numpy()


def test_the_known_result(
    program: ModuleType, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.main([*options, "--constant", "--table"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2:16] == [" ".join(["0.00272"] * 14)] * 14
    assert lines[-1] == "Launched compute kernel successfully."


@pytest.mark.parametrize("n", [3, 16, 64, 130])
def test_random_networks(
    program: ModuleType, options: list[str], n: int, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(rounds(5, 200)):
        assert program.main([*options, "--n", str(n)]) == 0
        out = capsys.readouterr().out
        assert f"matrices of {n} x {n}, random (--seed " in out
        found, expected = (
            np.array(out.partition(who)[2].splitlines()[0].rstrip("….").split(), np.float64)
            for who in ("device, f32", "numpy, f64")
        )
        assert 0 < found.size <= 6 and found.shape == expected.shape
        np.testing.assert_allclose(found, expected, atol=2e-5 * max(1, np.abs(expected).max()))


def test_a_seed_repeats_its_network(
    program: ModuleType, options: list[str], seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    results = []
    for each in (seed, seed, seed + 1):
        assert program.main([*options, "--json", "--seed", str(each)]) == 0
        results.append(json.loads(capsys.readouterr().out)["result"])
    assert results[0] == results[1] != results[2]


@pytest.mark.parametrize("name", WEIGHTS)
def test_one_weight_changes_the_result(
    program: ModuleType, device: Device, rng: np.random.Generator, name: str
) -> None:
    n = 8
    used = {"w1": n * n, "w2": n * n, "w3": 9, "w4": (n - 2) ** 2, "w5": (n - 2) ** 2}[name]
    inputs = program.random_inputs(n, int(rng.integers(1 << 32)))
    before = result(program, inputs, device)
    position = rng.integers(used)
    inputs[name].ravel()[position] += 1
    after = result(program, inputs, device)
    assert not np.array_equal(before, after), f"{name}[{position}] has no effect"
    assert program.relative_error(after, program.reference(inputs)[-1]) <= program.TOLERANCE


@pytest.mark.parametrize("name, used", [("w3", 9), ("w4", 36), ("w5", 36)])
def test_weights_beyond_the_first_values_are_not_used(
    program: ModuleType, device: Device, name: str, used: int
) -> None:
    inputs = program.random_inputs(8, 1)
    before = result(program, inputs, device)
    inputs[name].ravel()[used:] = np.nan
    np.testing.assert_array_equal(result(program, inputs, device), before)


def test_the_error_is_relative_to_the_largest_or_absolute_when_that_is_zero(
    program: ModuleType,
) -> None:
    got = np.array([[1.0, -2.5]], np.float32)
    assert program.relative_error(got, np.array([[1.0, -2.0]])) == 0.25
    assert program.relative_error(got, np.zeros((1, 2))) == 2.5
    assert np.isnan(program.relative_error(np.array([[np.nan]], np.float32), np.ones((1, 1))))


@pytest.mark.parametrize("wrong", [1e-3, np.nan])
@pytest.mark.parametrize("json_option", [[], ["--json"]])
def test_a_wrong_result_is_exit_status_1(
    program: ModuleType,
    options: list[str],
    wrong: float,
    json_option: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    right = program.reference
    monkeypatch.setattr(program, "reference", lambda inputs: [right(inputs)[-1] + wrong])
    assert program.main([*options, *json_option]) == 1
    assert "successfully" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "wrong, message",
    [
        (["--n", "2"], "--n 2: the 3 x 3 convolution needs matrices of at least 3 x 3"),
        (["--n", "-5"], "at least 3 x 3"),
        (["--n", "many"], "invalid int value"),
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
    assert captured.out == ""
    assert captured.err.count("\n") <= 3


def test_what_cannot_be_written_is_exit_status_3(
    program: ModuleType, options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.main([*options, "--save", str(tmp_path / "missing" / "file.npz")]) == 3
    assert "missing" in capsys.readouterr().err


def test_json_holds_everything(
    program: ModuleType, options: list[str], device: Device, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.main([*options, "--constant", "--json", "--time", "--n", "5"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["backend"] == device.backend
    assert report["n"] == 5
    assert report["seed"] is None
    assert report["right"] is True
    assert 0 <= report["error"] <= report["tolerance"] == 1e-5
    assert np.array(report["result"]).shape == (3, 3)
    assert [layer["side"] for layer in report["layers"]] == [5] * 6 + [3] * 6
    assert [layer["name"] for layer in report["layers"]][-2:] == ["matmul w5", "gelu"]
    assert all(layer["milliseconds"] >= 0 for layer in report["layers"])


def test_save_holds_inputs_weights_every_layer_and_the_result(
    program: ModuleType, options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "network.npz"
    assert program.main([*options, "--seed", "7", "--n", "11", "--save", str(path)]) == 0
    saved = dict(np.load(path))
    inputs = program.random_inputs(11, 7)
    for name, values in inputs.items():
        np.testing.assert_array_equal(saved.pop(name), values)
    outcome = saved.pop("result")
    layers = [saved[name] for name in sorted(saved)]
    assert len(layers) == len(program.LAYERS)
    np.testing.assert_array_equal(layers[-1], outcome)
    for layer, expected in zip(layers, program.reference(inputs), strict=True):
        assert program.relative_error(layer, expected) <= program.TOLERANCE


def test_time_prints_a_row_for_each_layer(
    program: ModuleType, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.main([*options, "--time"]) == 0
    lines = capsys.readouterr().out.splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith("layer"))
    rows = [line.split() for line in lines[start + 1 : start + 1 + len(program.LAYERS)]]
    assert [int(row[0]) for row in rows] == list(range(1, len(rows) + 1))
    total = lines[start + 1 + len(rows)].split()
    assert total[0] == "all"
    assert float(total[1]) == pytest.approx(sum(float(row[-1]) for row in rows), abs=1e-2)


def test_large_results_are_cut(
    program: ModuleType, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.main([*options, "--table", "--n", "40"]) == 0
    assert "(the upper left 14 x 14 of 38 x 38)" in capsys.readouterr().out

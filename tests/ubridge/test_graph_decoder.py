"""A decoder traced, executed and replayed on every backend; its errors."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tests.sampling import SOAK
from tests.ubridge.op_rows import OP_ROWS, row_of
from uhal import Device

DEVICES = tuple(row.name for row in OP_ROWS)
PROGRAM = Path(__file__).resolve().parents[2] / "examples" / "graph_decoder.py"


@pytest.fixture(scope="module")
def program() -> ModuleType:
    specification = importlib.util.spec_from_file_location("graph_decoder", PROGRAM)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[module.__name__] = module
    specification.loader.exec_module(module)
    return module


@pytest.fixture
def options(device: Device) -> list[str]:
    row_of(device.backend).require_images()
    found = ["--backend", device.backend, "--device", str(device.ordinal)]
    # Number of layers: all on the host and in a soak.
    return found if SOAK or device.backend == "host" else [*found, "--layers", "6"]


def test_executed_and_replayed(
    program: ModuleType, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    status = program.main(options)
    captured = capsys.readouterr()
    assert status == 0, captured.out + captured.err
    _, planned, executed, launches, replayed = captured.out.splitlines()
    layers = 6 if "--layers" in options else 28
    assert planned.startswith(f"{8 + 15 * layers} operations; ")
    assert float(planned.rpartition("(")[2].rstrip(")")) <= 0.3
    assert executed.startswith("executed: error ")
    if "tops" not in options:
        assert launches == f"captured: {8 + 15 * layers} launches"
    assert replayed == "replayed: the same bits"


@pytest.mark.parametrize("name", ["0.qkv", "1.gate", "1.attention_norm", "head"])
def test_a_wrong_weight_is_found(
    program: ModuleType,
    host: Device,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    right = program.Decoder.__init__

    def wrong(self: object, sizes: object, weights: dict[str, np.ndarray]) -> None:
        right(self, sizes, {**weights, name: weights[name] * np.float32(1.01)})

    monkeypatch.setattr(program.Decoder, "__init__", wrong)
    options = ["--backend", "host", "--layers", "2", "--positions", "4"]
    assert program.main(options) == 1
    assert "the same bits" in capsys.readouterr().out


def test_no_such_device_is_exit_status_3(
    program: ModuleType, host: Device, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.main(["--backend", "host", "--device", "999"]) == 3
    assert capsys.readouterr().out == ""

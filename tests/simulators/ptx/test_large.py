"""The translator reads only launched kernels of a large module, and their callees."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.ptx_large import FUNCTIONS, LargeModule
from simulators.ptx import parser, serve, unit


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the functions whose bodies were read, in order."""
    names: list[str] = []

    def recording(program: Any, name: str) -> Any:
        names.append(name)
        return parser.read_function(program, name)

    monkeypatch.setattr(serve, "read_function", recording)
    monkeypatch.setattr(unit, "read_function", recording)
    return names


def test_only_what_is_asked_for_is_read(
    read: list[str], tmp_path: Path, rng: np.random.Generator, seed: int
) -> None:
    module = LargeModule(seed, 30, 30 * 40_000)
    kernel = int(rng.integers(30))
    text = tmp_path / "large.ptx"
    text.write_text(module.text())
    assert serve.answer(f"describe\t{text}\t{tmp_path / 'description'}") == "done"
    assert read == []
    question = f"translate\t{text}\tkernel_{kernel}\ton\t{tmp_path / 'kernel.so'}"
    assert serve.answer(question) == "done"
    assert read == [f"kernel_{kernel}", f"finish_{kernel % FUNCTIONS}"]


@pytest.mark.parametrize("kernels", [2, 30])
def test_an_unknown_instruction_is_found_when_the_module_is_loaded(
    tmp_path: Path, seed: int, kernels: int
) -> None:
    """The error names the line, in a module of any size."""
    lines = LargeModule(seed, kernels, kernels * 40_000).text().splitlines()
    at = max(index for index, line in enumerate(lines) if line.startswith("\txor.b32"))
    lines[at] = "\t@%p1 frobnicate.u32 \t%r1, %r2;"
    text = tmp_path / "large.ptx"
    text.write_text("\n".join(lines))
    answer = serve.answer(f"describe\t{text}\t{tmp_path / 'description'}")
    assert answer == f"no_ptx\t{at + 1}\tthere is no instruction frobnicate.u32"

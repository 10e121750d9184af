"""Damaged files of every loader: loaded, or refused by an error of uhal's that names the file."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.children import run_child
from tests.host_kernels import has_compiler
from tests.requirements import needed
from tests.sampling import rounds

pytest.importorskip("tokenizers")
pytest.importorskip("sentencepiece")
pytest.importorskip("gguf")

from tests.ubridge.file_mutants import CASES, run_mutants

EACH = rounds(60, 1600)
"""Number of damaged files per case; a soak has 30,400 in all."""

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="bounds of memory and time are Linux's"),
    needed(has_compiler(), "no C++ compiler"),
]


@pytest.mark.drawn(4)
@pytest.mark.parametrize("case", CASES)
def test_a_damaged_file_is_refused_by_its_name(
    case: str, rng: np.random.Generator, tmp_path: Path
) -> None:
    """Loading ends without a signal, within 5 seconds and 512 MB, and only raises uhal's errors."""
    seed = int(rng.integers(1 << 32))
    quiet = {"RUST_BACKTRACE": "0", "UHAL_HOST_THREADS": "2"}
    folder = tmp_path / "files"
    folder.mkdir()
    done = run_child(run_mutants, case, seed, EACH, str(folder), environment=quiet)
    number = folder / "number"
    at = number.read_text() if number.exists() else "before the first"
    said = f"run_mutants({case!r}, {seed}, {EACH}): {done.returncode} at {at}\n{done.stdout}"
    assert done.returncode == 0, said + done.stderr[-4000:]
    refused = re.fullmatch(r"refused (\d+)\n", done.stdout)
    assert refused is not None, said
    # If all files loaded, nothing would have been damaged.
    assert int(refused[1]) > EACH // 10, said

"""The translator as a child process, and the cache it fills."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from simulators.ptx.layout import ABI
from tests.simulators.ptx.conftest import HERE

PROGRAM = HERE.parents[2] / "simulators" / "ptx" / "__main__.py"
KERNELS = HERE / "kernels.ptx"


def ask(*arguments: object, cache: Path | None = None) -> tuple[int, dict[str, Any]]:
    environment = dict(os.environ) | ({"UHAL_SIM_CACHE": str(cache)} if cache else {})
    done = subprocess.run(
        [sys.executable, "-I", str(PROGRAM), *map(str, arguments)],
        capture_output=True,
        text=True,
        env=environment,
        cwd="/",
        check=False,
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_a_library_is_made_once(tmp_path: Path) -> None:
    status, answer = ask("library", KERNELS, "scan", cache=tmp_path)
    assert status == 0
    library = Path(answer["library"])
    made = library.stat().st_ino
    assert ctypes.c_uint32.in_dll(ctypes.CDLL(str(library)), "uptx_kernel").value == ABI
    assert ask("library", KERNELS, "scan", cache=tmp_path) == (0, answer)
    # A new library would have another inode. The file's time only shows the last use.
    assert library.stat().st_ino == made
    other = tmp_path / "other.ptx"
    other.write_text(KERNELS.read_text() + "// another text\n")
    assert ask("library", other, "scan", cache=tmp_path)[1] != answer
    assert not [one for one in tmp_path.iterdir() if one.is_dir()]


def test_a_text_is_described() -> None:
    status, answer = ask("check", KERNELS)
    assert status == 0
    assert answer["target"] == "sm_80"
    assert "block_sum" in answer["kernels"]
    variables = {one["name"]: one for one in answer["variables"]}
    assert variables["counters"]["data"].startswith("01000000020000000300000004")
    words = next(one for name, one in variables.items() if "words" in name)
    assert [offset for offset, _, _ in words["references"]] == [0, 8]


@pytest.mark.parametrize(
    ("text", "status", "words", "line"),
    [
        ("no PTX at all", 1, "does not begin with .version", 1),
        (".version 8.0\n.target sm_80\n.entry k() {\n wmma.load; ret;\n}", 2, "wmma", 4),
        (".version 8.0\n.target sm_80\n.entry j() { ret; }", 1, "there is no kernel k", 0),
    ],
)
def test_refusals(tmp_path: Path, text: str, status: int, words: str, line: int) -> None:
    path = tmp_path / "k.ptx"
    path.write_text(text)
    got, answer = ask("library", path, "k")
    assert got == status
    assert words in answer["problem"]
    assert answer["line"] == line


def test_without_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "/nonexistent/cc")
    status, answer = ask("library", KERNELS, "scan", cache=tmp_path)
    assert status == 3
    assert "/nonexistent/cc cannot be started" in answer["problem"]


def test_a_changed_constant_changes_the_answer() -> None:
    import numpy as np

    from simulators.ptx.launch import Module

    text = (
        ".version 7.0\n.target sm_75\n.address_size 64\n"
        ".visible .entry renamed(.param .u64 out) {\n.reg .b64 %d; ld.param.u64 %d, [out];\n"
        "st.global.u32 [%d], 1234; ret; }"
    )
    for constant in ("1234", "987654"):
        out = np.zeros(1, "u4")
        kernel = Module(text.replace("1234", constant)).kernel("renamed")
        kernel.launch([1], [1], [out])
        assert out[0] == int(constant)

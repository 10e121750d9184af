"""PyInstaller freezes a program with every backend, kernel, image and table of uhal."""

from __future__ import annotations

import importlib.util
import json
import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.children import ROOT, untold
from tests.requirements import needed_module
from tests.sampling import SOAK
from uhal.registry import OURS

PROGRAM = """
import json
import sys
from pathlib import Path

import numpy as np

import ubridge as ub
import uhal
from uhal.registry import records

x = np.random.default_rng(int(sys.argv[1])).standard_normal((64, 64))
device = uhal.Device(sys.argv[2])
product = ub.relu(ub.array(x, device=device) @ ub.array(x, device=device)).to_numpy()
error = float(abs(product - np.maximum(x @ x, 0)).max())
images = Path(ub.__file__).parent.glob("kernels/images/*/*")
backends = {record.name: record.reason for record in records()}
said = {"error": error, "images": len(list(images)), "backends": backends, "file": uhal.__file__}
print(json.dumps(said))
"""


def test_the_hooks_are_an_entry_point_of_the_wheel() -> None:
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    group = project.partition("[project.entry-points.pyinstaller40]")[2]
    found = re.match(r'\nhook-dirs = "([\w.]+):(\w+)"\n', group)
    assert found is not None
    (folder,) = getattr(importlib.import_module(found[1]), found[2])()
    hooks = {path.name for path in Path(folder).glob("hook-*.py")}
    assert hooks == {"hook-uhal.py", "hook-ubridge.py"}


@pytest.mark.parametrize("has_blas", [True, False])
def test_hooks_collect_packages_that_are_there(
    has_blas: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks = ModuleType("PyInstaller.utils.hooks")
    collected: dict[str, Any] = {
        "collect_dynamic_libs": lambda package, search_patterns: [(package, "libraries")],
        "collect_data_files": lambda package: [(package, "files")],
        "collect_submodules": lambda package: [package],
        "copy_metadata": lambda name: [(name, "metadata")],
    }
    vars(hooks).update(collected)
    for name in ("PyInstaller", "PyInstaller.utils"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, hooks.__name__, hooks)
    monkeypatch.delitem(sys.modules, "uhal._pyinstaller.contents", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: hooks if has_blas else None)
    for hook, packages in (
        ("uhal", ["uhal", *OURS.values()]),
        ("ubridge", ["ubridge", *(["scipy_openblas32"] if has_blas else [])]),
    ):
        made = runpy.run_path(str(ROOT / "uhal" / "_pyinstaller" / f"hook-{hook}.py"))
        assert made["binaries"] == [(package, "libraries") for package in packages]
        assert made["datas"][: len(packages)] == [(package, "files") for package in packages]
        assert made["hiddenimports"][: len(packages)] == packages


@pytest.mark.skipif(not SOAK, reason="freezing a program takes half a minute: make soak")
def test_a_frozen_program_runs_without_the_checkout(tmp_path: Path, seed: int) -> None:
    needed_module("PyInstaller")
    (tmp_path / "program.py").write_text(PROGRAM, "utf-8")
    hooks = str(ROOT / "uhal" / "_pyinstaller")
    command = [sys.executable, "-m", "PyInstaller", "--noconfirm", "--log-level=WARN"]
    command += ["--additional-hooks-dir", hooks, "--paths", str(ROOT), "program.py"]
    made = subprocess.run(command, cwd=tmp_path, env=untold(), capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr
    program = tmp_path / "dist" / "program" / "program"
    arguments = [str(program), str(seed), "host"]
    done = subprocess.run(arguments, cwd=tmp_path, env=untold(), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    said = json.loads(done.stdout)
    assert said["error"] < 1e-9
    assert Path(said["file"]).is_relative_to(tmp_path)
    images = list((ROOT / "ubridge" / "kernels" / "images").glob("*/*"))
    assert said["images"] == len(images)
    missing = {name for name, why in said["backends"].items() if "not in this version" in why}
    assert not missing

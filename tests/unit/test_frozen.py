"""PyInstaller freezes a program with every backend, kernel, image and table of uhal."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.children import ROOT, untold
from tests.requirements import needed_module
from tests.sampling import SOAK

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

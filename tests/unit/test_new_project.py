"""The project of `python -m uhal new` is built, tested and debugged as its page says."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.host_kernels import has_compiler
from tests.requirements import needed
from uhal.images.hsaco import read_hsaco

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [
    needed(has_compiler(), "kernels are compiled here"),
    needed(shutil.which("make"), "no make"),
]


def run(*command: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    own = {**os.environ, "PYTHONPATH": str(ROOT), "DEBUGINFOD_URLS": "", **environment}
    return subprocess.run(command, cwd=folder, env=own, capture_output=True, text=True, timeout=200)


def make(target: str, folder: Path) -> str:
    done = run("make", "-s", f"PYTHON={sys.executable}", target, folder=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("made") / "own project"
    done = run(sys.executable, "-m", "uhal", "new", str(folder), folder=ROOT)
    assert done.returncode == 0, done.stderr
    yield folder


def test_it_is_built_and_tested(project: Path) -> None:
    said = make("test", project)
    assert " passed" in said and "failed" not in said
    done = run(sys.executable, "program.py", "host", folder=project)
    assert done.returncode == 0 and done.stdout.startswith("host: "), done.stderr


@needed(importlib.util.find_spec("ziglang"), "needs the extra kernels")
@pytest.mark.parametrize("kind", ["spv", "hsaco"])
def test_images_of_other_devices(project: Path, kind: str) -> None:
    make(kind, project)
    image = (project / "build" / f"kernels.{kind}").read_bytes()
    if kind == "hsaco":
        assert str(read_hsaco(image).signatures["saxpy"].declaration).startswith("u64 n, f32 a")
    else:
        assert image.startswith(b"\x03\x02\x23\x07")


def test_a_missing_pytest_is_named(project: Path) -> None:
    make("all", project)
    isolated = f"PYTHON={sys.executable} -I -S"
    done = run("make", "-s", "NVCC=no-such-compiler", isolated, "test", folder=project)
    assert done.returncode != 0 and "-m pip install pytest" in done.stderr


def test_what_is_there_is_left_alone(project: Path) -> None:
    (project / "program.py").write_text((project / "program.py").read_text() + "# mine\n")
    done = run(sys.executable, "-m", "uhal", "new", str(project), folder=ROOT)
    assert done.returncode == 1 and "exists: nothing was written" in done.stderr
    assert (project / "program.py").read_text().endswith("# mine\n")


def test_checked(project: Path) -> None:
    make("checked", project)
    done = run(sys.executable, "program.py", "host", folder=project, UHAL_HOST_CHECK="1")
    assert done.returncode == 0, done.stderr


def test_vscodes_settings_fit_the_project(project: Path) -> None:
    tasks = json.loads((project / ".vscode" / "tasks.json").read_text())["tasks"]
    launch = json.loads((project / ".vscode" / "launch.json").read_text())
    labels = {task["label"]: task["command"] for task in tasks}
    known = {one["name"]: one for one in launch["configurations"]}
    for one in known.values():
        assert one.get("preLaunchTask", "build") in labels
        program = one["program"].replace("${workspaceFolder}", str(project))
        assert Path(program).exists()
    for compound in launch["compounds"]:
        assert set(compound["configurations"]) <= known.keys()
    for command in labels.values():
        done = run("make", "-n", *command.split()[1:], folder=project)
        assert done.returncode == 0, done.stderr


@pytest.mark.skipif(shutil.which("gdb") is None, reason="gdb is not installed: apt install gdb")
def test_gdb_stops_where_a_kernel_is(project: Path) -> None:
    """Breakpoints by lines of the source; the work-item; registers of a block."""
    make("debug", project)
    text = (project / "kernels.cu").read_text().splitlines()
    product = next(n for n, line in enumerate(text, 1) if "y[i] = product" in line)
    total = next(n for n, line in enumerate(text, 1) if "if (t == 0)" in line)
    # As .vscode/launch.json has it.
    settings = json.loads((project / ".vscode" / "launch.json").read_text())["configurations"][2]
    commands = [
        *(one["text"] for one in settings["setupCommands"]),
        f"break kernels.cu:{product} if i == 300",
        f"break kernels.cu:{total} if t == 0 && this->blockIdx.x == 2",
        "run",
        "uhal-where",
        "print blockIdx",
        "print product == a * x[i]",
        "continue",
        "uhal-where",
        "print mine",
        "continue",
    ]
    options = [part for command in commands for part in ("-ex", command)]
    command = [
        "gdb",
        "-nx",
        "-batch",
        *options,
        "--args",
        settings["program"],
        "program.py",
        "host",
    ]
    done = run(*command, folder=project, UHAL_HOST_THREADS="1")
    said = done.stdout
    where = "kernel saxpy, block (1, 0, 0) of (4, 1, 1), block shape (128, 1, 1), i = 300"
    assert where in said, said + done.stderr
    assert "$1 = (1, 0, 0)" in said and "$2 = true" in said
    assert "kernel sum, block (2, 0, 0) of (4, 1, 1), block shape (128, 1, 1), t = 0" in said
    assert "$3 = {" in said and ", …}" in said
    assert "largest error" in said

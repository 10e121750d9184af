"""Every example runs from the command line; `06_mistakes` prints exactly its golden text."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("0*.py"))
MISTAKES = ROOT / "tests" / "examples" / "06_mistakes.txt"
MOST_LINES = 60


def run(
    program: Path, folder: Path, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(program), *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8", **environment},
        capture_output=True,
        encoding="utf-8",
    )


def example(number: str) -> Path:
    return next(path for path in EXAMPLES if path.name.startswith(number))


def test_there_are_nine() -> None:
    assert [path.name[:2] for path in EXAMPLES] == [f"{number:02}" for number in range(1, 10)]


@pytest.mark.drawn(1 / 3)
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(path: Path, tmp_path: Path) -> None:
    done = run(path, tmp_path, "--backend", "host")
    assert done.stderr == ""
    assert done.returncode == 0
    assert done.stdout


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_is_short_and_says_what_it_shows(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= MOST_LINES
    assert lines[0].startswith('"""')
    assert not any("if simulated" in line for line in lines)


def test_messages_of_06_mistakes(tmp_path: Path) -> None:
    done = run(example("06"), tmp_path, "--backend", "host")
    assert done.stdout == MISTAKES.read_text(encoding="utf-8")


def test_01_devices_shows_one_backend_only(tmp_path: Path) -> None:
    done = run(example("01"), tmp_path, "--backend", "host")
    assert "host:0" in done.stdout
    assert "cuda" not in done.stdout


def test_03_without_a_compiler_says_what_to_do(tmp_path: Path) -> None:
    done = run(example("03"), tmp_path, CXX="no-such-compiler")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "apt-get install g++" in done.stderr


@pytest.mark.drawn(1)
@pytest.mark.parametrize("name", ["network_test", "component_test"])
def test_programs_run_as_a_file_and_as_a_command(name: str, tmp_path: Path) -> None:
    options = ("--backend", "host", "--seed", "1")
    as_file = run(ROOT / "examples" / f"{name}.py", tmp_path, *options)
    assert as_file.returncode == 0, as_file.stderr
    as_command = subprocess.run(
        [sys.executable, "-m", "uhal", name, *options],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        encoding="utf-8",
    )
    assert as_command.returncode == 0, as_command.stderr
    assert as_command.stdout == as_file.stdout

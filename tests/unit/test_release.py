"""A release: the files of the source distribution, notices, and the pins of its recipe."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from build_support.imports import PRODUCT
from build_support.native import native_jobs
from tests.host_kernels import has_compiler
from tests.requirements import needed

ROOT = Path(__file__).resolve().parents[2]
RECIPE = ROOT / ".github" / "workflows" / "publish.yml"
REQUIREMENTS = ROOT / ".github" / "requirements"

PACKAGES = {name.partition(".")[0] for name in PRODUCT}
"""Folders whose modules setuptools adds."""
NOT_IN_SOURCES = {
    ".ci/run": "a checkout's",
    ".gitignore": "a checkout's",
    "MANIFEST.in": "setuptools adds it",
    "setup.py": "setuptools adds it",
    "pyproject.toml": "setuptools adds it",
}


def test_the_source_distribution_holds_every_tracked_file() -> None:
    """Apply MANIFEST.in's rules to the tracked files, which needs no build."""
    tracked = git("ls-files")
    modules = {path for path in tracked if path.endswith(".py") and path.split("/")[0] in PACKAGES}
    assert set(tracked) - chosen(tracked) - modules == set(NOT_IN_SOURCES)


@needed(has_compiler(), "jobs are those of a compiler")
def test_files_that_the_build_makes_are_no_sources() -> None:
    """Neither git nor the source distribution takes the files left by a checkout's build."""
    made = [
        job.output.relative_to(ROOT).as_posix()
        for job in native_jobs(ROOT, ROOT, every_level=False)
    ]
    assert len(made) > 20
    assert git("check-ignore", *made) == made
    assert chosen(made) == set()


def git(*arguments: str) -> list[str]:
    """Return the lines that git prints about this checkout."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout: the tracked files are unknown")
    said = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return said.stdout.splitlines()


def chosen(paths: list[str]) -> set[str]:
    """Return the paths that MANIFEST.in's rules take."""
    filelist = pytest.importorskip("setuptools._distutils.filelist").FileList()
    filelist.set_allfiles(paths)
    for line in (ROOT / "MANIFEST.in").read_text("utf-8").splitlines():
        filelist.process_template_line(line)
    return set(filelist.files)


def test_licences_of_others_are_named() -> None:
    """Wheels and source distributions carry the files that pyproject.toml lists as licences."""
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    assert 'license-files = ["LICENSE", "licenses/*.txt"]' in project
    assert 'license = "Apache-2.0 AND MIT"' in project
    (notice,) = (ROOT / "licenses").iterdir()
    text = notice.read_text("utf-8")
    assert "The ggml authors" in text and "Permission is hereby granted" in text
    for name in re.findall(r"ubridge/\S+\.h", text):
        assert "ggml" in (ROOT / name).read_text("utf-8"), name


def test_the_recipe_pins_actions_by_commit() -> None:
    uses = re.findall(r"uses: (\S+)(.*)", RECIPE.read_text("utf-8"))
    assert len(uses) >= 10
    for action, comment in uses:
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action), action
        assert re.fullmatch(r" # v[0-9.]+", comment), f"{action}: say its version"


def test_the_recipe_installs_by_hash() -> None:
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    for line in (*RECIPE.read_text("utf-8").splitlines(), *project.splitlines()):
        if "pip install" in line and not re.search(r"pip install dist/\S+whl$", line):
            assert "--require-hashes -r " in line, line
            name = Path(line.split("-r ")[1].strip('"')).name
            assert (REQUIREMENTS / name).is_file(), line
    for path in REQUIREMENTS.glob("*.txt"):
        blocks = re.split(r"\n(?=\w)", path.read_text("utf-8"))[1:]
        assert blocks, path
        for block in blocks:
            assert "==" in block.split()[0] and "--hash=sha256:" in block, block.split("\n")[0]


def test_the_pins_are_the_requirements_of_the_build() -> None:
    tomllib = pytest.importorskip("tomllib" if sys.version_info >= (3, 11) else "tomli")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    given = (REQUIREMENTS / "build.in").read_text("utf-8").split()
    assert given == project["build-system"]["requires"]
    pinned = (REQUIREMENTS / "build.txt").read_text("utf-8").lower()
    for one in given:
        assert f"\n{re.split('[<>=]', one)[0].lower()}==" in pinned

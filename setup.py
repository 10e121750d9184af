"""Builds uhal: `pip install -e .`, `pip wheel .`, or offline `python setup.py build_ext --inplace`.

Everything declarative is in `pyproject.toml`; here is what it cannot say: the compiled parts and
which packages exist.
"""

from __future__ import annotations

import sys
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
# A build front end runs this file without its folder on the path.
sys.path.insert(0, str(ROOT))

from build_support.jobs import BuildError, build
from build_support.native import native_jobs
from build_support.requirements import build_requirements, unmet

if sys.platform == "win32":
    raise SystemExit("uhal runs on Linux and macOS; on Windows use it inside WSL 2.")

# An old setuptools would stop at pyproject.toml with a page of JSON schema.
missing = unmet(build_requirements(ROOT))
if missing:
    wanted = " ".join(f"'{requirement}'" for requirement in missing)
    raise SystemExit(f"Building uhal needs more: {sys.executable} -m pip install {wanted}")


class BuildNative(build_ext):
    """Builds the lane, the host runtime and the host kernels in one parallel pool."""

    def run(self) -> None:
        in_place = bool(self.inplace) or self.editable_mode
        destination = ROOT if in_place else Path(self.build_lib).resolve()
        try:
            jobs = native_jobs(ROOT, destination, every_level=not in_place)
            build(jobs, ROOT)
        except BuildError as error:
            raise SystemExit(f"\nuhal was not built.\n\n{error}") from None

    def get_outputs(self) -> list[str]:
        return getattr(self, "made", [])

    def get_output_mapping(self) -> dict[str, str]:
        return {}

    def get_source_files(self) -> list[str]:
        # MANIFEST.in lists them: most belong to no extension.
        return []


setup(
    packages=[*find_packages(include=["uhal*", "ubridge*", "*_backend*"]), "uhal.examples"],
    package_dir={"uhal.examples": "examples"},
    # Declared so that the wheel is tagged for this interpreter; BuildNative does the work.
    ext_modules=[Extension("uhal._lane", ["cython_src/lane.pyx"])],
    cmdclass={"build_ext": BuildNative},
)

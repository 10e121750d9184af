"""Builds uhal: `pip install -e .`, `pip wheel .`, or offline `python setup.py build_ext --inplace`.

`pyproject.toml` has all declarative settings. This file has the rest: the compiled parts and the
list of packages.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import ClassVar

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.command.editable_wheel import editable_wheel

ROOT = Path(__file__).resolve().parent
# A build front end runs this file without this folder on the module path.
sys.path.insert(0, str(ROOT))

from build_support.jobs import BuildError, build
from build_support.native import FLAVOURS, RELEASE, native_jobs
from build_support.requirements import build_requirements, unmet
from simulators.build import build_drivers

if sys.platform == "win32":
    raise SystemExit("uhal runs on Linux and macOS; on Windows use it inside WSL 2.")

# An old setuptools would stop at pyproject.toml with a page of JSON schema.
missing = unmet(build_requirements(ROOT))
if missing:
    wanted = " ".join(f"'{requirement}'" for requirement in missing)
    raise SystemExit(f"Building uhal needs more: {sys.executable} -m pip install {wanted}")


class BuildNative(build_ext):
    """Builds the lane, the host runtime and the host kernels in one parallel pool.

    For a wheel, it also builds the simulated drivers; in a checkout, `make simulators` builds them.
    """

    user_options: ClassVar = [
        *build_ext.user_options,
        ("flavour=", None, f"how everything is compiled: {', '.join(FLAVOURS)}"),
    ]

    def initialize_options(self) -> None:
        super().initialize_options()
        self.flavour = RELEASE.name

    def run(self) -> None:
        in_place = bool(self.inplace) or self.editable_mode
        destination = ROOT if in_place else Path(self.build_lib).resolve()
        try:
            flavour = FLAVOURS[self.flavour]
            jobs = native_jobs(ROOT, destination, every_level=not in_place, flavour=flavour)
            build(jobs, ROOT)
            if not in_place and sys.platform.startswith("linux"):
                build_drivers(destination / "uhal_simulators" / "build")
        except BuildError as error:
            raise SystemExit(f"\nuhal was not built.\n\n{error}") from None

    def get_outputs(self) -> list[str]:
        return getattr(self, "made", [])

    def get_output_mapping(self) -> dict[str, str]:
        return {}

    def get_source_files(self) -> list[str]:
        # MANIFEST.in lists the source files, because most belong to no extension.
        return []


LEFT_BEHIND = {
    ("uhal_simulators", "build"),
    ("uhal_conformance.suite", "conftest"),
    ("uhal_conformance.suite", "rows"),
}


class BuildPython(build_py):
    """Omits files that users do not need: files for the build, and files for a checkout's tests."""

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        found = super().find_package_modules(package, package_dir)
        return [module for module in found if module[:2] not in LEFT_BEHIND]


class EditableByPath(editable_wheel):
    """Installs a checkout by a path in a `.pth` file, which type checkers follow, too.

    Packages that a wheel renames would need a hook of the import system. A checkout's programs find
    these packages in their folders.
    """

    def initialize_options(self) -> None:
        super().initialize_options()
        renamed = tuple(self.distribution.package_dir)
        self.distribution.packages = [
            name for name in self.distribution.packages if not name.startswith(renamed)
        ]
        self.distribution.package_dir = {"": "."}


# The package is called `simulators` in a checkout; an installation needs a name of its own.
SIMULATORS = [f"uhal_{package}" for package in find_packages(include=["simulators*"])]

setup(
    packages=[
        *find_packages(include=["uhal*", "ubridge*", "*_backend*"]),
        *SIMULATORS,
        "uhal.examples",
        "uhal.examples.gallery",
        "uhal_conformance.suite",
    ],
    package_dir={
        "uhal.examples": "examples",
        "uhal_simulators": "simulators",
        "uhal_conformance.suite": "tests/conformance",
    },
    # Declared so that the wheel is tagged for this interpreter; BuildNative does the work.
    ext_modules=[Extension("uhal._lane", ["cython_src/lane.pyx"])],
    cmdclass={
        "build_ext": BuildNative,
        "build_py": BuildPython,
        "editable_wheel": EditableByPath,
    },
)

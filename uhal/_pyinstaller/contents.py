"""Files and modules of packages, in the form that a hook of PyInstaller returns.

Only hooks import this module: PyInstaller need not be installed elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

from PyInstaller.utils.hooks import collect_data_files, collect_dynamic_libs, collect_submodules

_LIBRARIES = ["*.so", "*.so.*", "*.dylib"]
"""PyInstaller's own patterns omit kernels' libraries, whose names do not begin with `lib`."""


@dataclass(frozen=True)
class Contents:
    """Files and modules of packages that PyInstaller does not find by imports."""

    binaries: list[tuple[str, str]]
    datas: list[tuple[str, str]]
    modules: list[str]

    @classmethod
    def of(cls, *packages: str) -> Contents:
        """Return the contents of packages: libraries, other files, and modules."""
        found = cls([], [], [])
        for package in packages:
            found.binaries.extend(collect_dynamic_libs(package, search_patterns=_LIBRARIES))
            found.datas.extend(collect_data_files(package))
            found.modules.extend(collect_submodules(package))
        return found


__all__ = ["Contents"]

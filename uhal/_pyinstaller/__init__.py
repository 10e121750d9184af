"""PyInstaller's hooks for uhal: frozen programs get backends, kernels and tables.

PyInstaller finds this folder by the entry point `pyinstaller40`, without a step of the user.
"""

from __future__ import annotations

from pathlib import Path


def hook_dirs() -> list[str]:
    """Return the folder of the hooks."""
    return [str(Path(__file__).resolve().parent)]


__all__ = ["hook_dirs"]

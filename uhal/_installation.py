"""Refuses an installation that cannot work, in one sentence. Imported before anything else."""

from __future__ import annotations

import os
from importlib.machinery import EXTENSION_SUFFIXES


def check_installation() -> None:
    """Raise `ImportError` when the compiled part is missing or another library shares the folder.

    CERN's IPbus library also installs a package `uhal`; its files and ours in one folder break
    both.
    """
    folder = os.path.dirname(os.path.abspath(__file__))
    names = os.listdir(folder)
    for name in names:
        if name.startswith("_core") and name.endswith(".so"):
            raise ImportError(
                f"{folder} also holds CERN's IPbus library, PyPI's `uhal` ({name}), which has the "
                "same import name: keep the two in separate environments (pip uninstall uhal, "
                "then reinstall uhal-py)"
            )
    if not any(f"_lane{suffix}" in names for suffix in EXTENSION_SUFFIXES):
        raise ImportError(
            "uhal's compiled part uhal._lane is not built for this Python: run `make demo`, or "
            "`python setup.py build_ext --inplace`, in the checkout"
        )


check_installation()

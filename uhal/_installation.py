"""Refuses an installation that cannot work, in one sentence. Imported before anything else."""

from __future__ import annotations

import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES


def check_installation() -> None:
    """Raise `ImportError` when the compiled part is missing or another library shares the folder.

    CERN's IPbus library also installs a package `uhal`; its files and ours in one folder break
    both.
    """
    folder = os.path.dirname(os.path.abspath(__file__))
    if not os.path.isdir(folder):
        raise ImportError(
            f"uhal cannot run from an archive ({folder}), because the system's loader opens its "
            "compiled parts as files: install it with pip beside the zipapp"
        )
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


def require_first_import(module: str) -> None:
    """Raise `ImportError` when this process imported a module of uhal before.

    Objects of the first import live on in the compiled part. A second import would make other
    classes of the same names, which the first refuses.
    """
    # Kept in a place that deleting uhal's modules does not affect.
    imported = sys.__dict__.setdefault("_uhal_imported", set())
    if module in imported:
        raise ImportError(
            f"{module} was imported before in this process; its compiled part cannot be loaded "
            "twice. Start a new process, or restart the notebook's kernel, instead of "
            "importlib.reload or deleting modules from sys.modules"
        )
    imported.add(module)


check_installation()
require_first_import(__name__.rpartition(".")[0])

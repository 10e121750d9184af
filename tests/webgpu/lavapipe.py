"""Mesa's Vulkan driver for CPUs, from Debian packages in the tests' cache.

Nothing is installed. New processes find the loader and the driver's libraries by `LD_LIBRARY_PATH`.
This process opens the libraries first, and later finds them by name.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from tests.debian_packages import LIBRARIES, unpack
from tests.requirements import missing
from webgpu_backend._library import candidates

_SET = "mesa-22"
_DRIVER = LIBRARIES / "libvulkan_lvp.so"


def lavapipe(folder: Path) -> Mapping[str, str]:
    """Return the environment in which wgpu-native finds the driver, here and in new processes.

    `folder` is a folder in pytest's cache; packages lie beside it.
    """
    if importlib.util.find_spec("wgpu") is None:
        missing('pip install "uhal-py[webgpu]"')
    packages = folder.parent / "debian"
    packages.mkdir(exist_ok=True)
    root = unpack(packages, _SET).resolve()
    description = root / "lavapipe.json"
    if not description.exists():
        unfinished = description.with_suffix(f".{os.getpid()}")
        icd = {"library_path": str(root / _DRIVER), "api_version": "1.3.230"}
        unfinished.write_text(json.dumps({"file_format_version": "1.0.0", "ICD": icd}))
        unfinished.replace(description)
    folders = (root / LIBRARIES, root / "lib" / LIBRARIES.name)
    _open_libraries(folders)
    paths = (*map(str, folders), os.environ.get("LD_LIBRARY_PATH", ""))
    return {
        # An earlier test may have searched for devices without the driver; a named library is
        # searched again.
        "UHAL_WEBGPU_LIBRARY": candidates()[0],
        "UHAL_WEBGPU_SOFTWARE": "1",
        "UHAL_WEBGPU_CACHE": str(folder / "webgpu"),
        "VK_ICD_FILENAMES": str(description),
        "VK_DRIVER_FILES": str(description),
        "VK_LOADER_LAYERS_DISABLE": "~all~",
        "LD_LIBRARY_PATH": os.pathsep.join(filter(None, paths)),
    }


@cache
def _open_libraries(folders: tuple[Path, ...]) -> None:
    """Open libraries that the loader would not find by name; dependencies come first."""
    waiting = {
        path.name: path for folder in folders for path in sorted(folder.glob("lib*.so.[0-9]"))
    }
    waiting |= {path.name: path for folder in folders for path in folder.glob("lib*.so.[0-9][0-9]")}
    for name in list(waiting):
        if _opens(name):
            del waiting[name]
    while waiting:
        opened = [name for name, path in waiting.items() if _opens(str(path))]
        assert opened, f"the packages lack dependencies of: {', '.join(waiting)}"
        for name in opened:
            del waiting[name]


def _opens(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True

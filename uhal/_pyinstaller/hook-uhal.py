"""Modules that `import uhal` needs in a frozen program: the backends, imported by name."""

from importlib.metadata import entry_points

from PyInstaller.utils.hooks import copy_metadata

from uhal._pyinstaller.contents import Contents
from uhal.registry import GROUP, OURS

_contents = Contents.of("uhal", *OURS.values())
binaries, datas, hiddenimports = _contents.binaries, _contents.datas, _contents.modules
for _point in entry_points(group=GROUP):
    hiddenimports.append(_point.module)
    if _point.dist is not None:
        datas += copy_metadata(_point.dist.name)

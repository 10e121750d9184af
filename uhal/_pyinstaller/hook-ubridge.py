"""Files that `import ubridge` needs in a frozen program: kernels, images, tables, OpenBLAS."""

from importlib.util import find_spec

from uhal._pyinstaller.contents import Contents

_packages = ("ubridge", "scipy_openblas32") if find_spec("scipy_openblas32") else ("ubridge",)
_contents = Contents.of(*_packages)
binaries, datas, hiddenimports = _contents.binaries, _contents.datas, _contents.modules

"""Replaces the user's nvcc: a request for a cubin makes PTX under the cubin's name.

`python -m uhal sim run` puts this program first in PATH. The driver takes PTX wherever it takes a
cubin.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

_CUBIN = ("-cubin", "--cubin")


def forwarded(arguments: list[str]) -> list[str]:
    """Return the arguments for the user's nvcc."""
    if not any(one in _CUBIN for one in arguments):
        return arguments
    made = ["--ptx" if one in _CUBIN else one for one in arguments]
    named = any(one.startswith(("-o", "--output-file")) for one in arguments)
    sources = [one for one in arguments if one.endswith((".cu", ".ptx"))]
    if named or len(sources) != 1:
        return made
    return [*made, "-o", f"{Path(sources[0]).stem}.cubin"]


def main() -> None:
    """Become the next nvcc in PATH."""
    own = os.path.dirname(shutil.which("nvcc") or "")
    others = [one for one in os.environ["PATH"].split(os.pathsep) if one != own]
    nvcc = shutil.which("nvcc", path=os.pathsep.join(others))
    if nvcc is None:
        sys.exit("nvcc: there is none behind the one of `python -m uhal sim run` in PATH")
    os.environ["PATH"] = os.pathsep.join(others)
    os.execv(nvcc, [nvcc, *forwarded(sys.argv[1:])])


if __name__ == "__main__":
    main()

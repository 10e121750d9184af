"""Puts the output of gallery examples into pages.

`<!-- picture: NAME -->` becomes the example's picture, `<!-- printed: NAME -->` its printed text.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "examples" / "gallery"
PICTURES = ROOT / "build" / "site" / "pictures"
_MARK = re.compile(r"<!-- (picture|printed): (\w+) -->")


def connect(app: Sphinx) -> None:
    """Run a program when a page that shows its output is read."""
    app.connect("source-read", _of_page)


def _of_page(app: Sphinx, name: str, source: list[str]) -> None:
    def shown(mark: re.Match[str]) -> str:
        picture, said = computed(mark[2], draws=mark[1] == "picture")
        if mark[1] == "printed":
            return f"```text\n{said}\n```"
        path = os.path.relpath(picture, Path(app.srcdir, name).parent)
        return f"![{said}]({path})\n\n{said}"

    source[0] = _MARK.sub(shown, source[0])


def computed(name: str, *, draws: bool = True) -> tuple[Path, str]:
    """Return a gallery program's picture and printed text; both are cached."""
    program = PROGRAMS / f"{name}.py"
    sources = [program, program.with_suffix(".cu"), PROGRAMS / "shared.py"]
    texts = [path.read_bytes() for path in sources if path.exists()]
    digest = hashlib.sha256(b"".join(texts)).hexdigest()[:16]
    picture = PICTURES / f"{name}-{digest}.png"
    reported = picture.with_suffix(".txt")
    if not reported.exists():
        PICTURES.mkdir(parents=True, exist_ok=True)
        options = ["--output", str(picture)] if draws else []
        done = subprocess.run(
            [sys.executable, str(program), "--backend", "host", *options],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            encoding="utf-8",
        )
        if done.returncode != 0:
            raise ExtensionError(f"{program.name} failed:\n{done.stderr}")
        reported.write_text(done.stdout, encoding="utf-8")
    return picture, reported.read_text(encoding="utf-8").strip()

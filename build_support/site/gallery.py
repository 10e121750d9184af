"""Puts pictures where pages say `<!-- picture: NAME -->`; the example of that name computes it."""

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
_MARK = re.compile(r"<!-- picture: (\w+) -->")


def connect(app: Sphinx) -> None:
    """Compute a picture when the page that shows it is read."""
    app.connect("source-read", _of_page)


def _of_page(app: Sphinx, name: str, source: list[str]) -> None:
    def shown(mark: re.Match[str]) -> str:
        picture, said = computed(mark[1])
        place = os.path.relpath(picture, Path(app.srcdir, name).parent)
        return f"![{said}]({place})\n\n{said}"

    source[0] = _MARK.sub(shown, source[0])


def computed(name: str) -> tuple[Path, str]:
    """Return the picture of a program and what the program printed; both are kept."""
    program = PROGRAMS / f"{name}.py"
    sources = [program, program.with_suffix(".cu"), PROGRAMS / "shared.py"]
    texts = [path.read_bytes() for path in sources if path.exists()]
    digest = hashlib.sha256(b"".join(texts)).hexdigest()[:16]
    picture = PICTURES / f"{name}-{digest}.png"
    told = picture.with_suffix(".txt")
    if not told.exists():
        PICTURES.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            [sys.executable, str(program), "--output", str(picture), "--backend", "host"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            encoding="utf-8",
        )
        if done.returncode != 0:
            raise ExtensionError(f"{program.name} computed no picture:\n{done.stderr}")
        told.write_text(done.stdout, encoding="utf-8")
    return picture, told.read_text(encoding="utf-8").strip()

"""The reference of the kernel language matches its headers, and tests launch every entry of the
reference."""

from __future__ import annotations

import re
from pathlib import Path

from build_support import kernel_reference

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ROOT / "tests" / "conformance" / "kernels" / "language.cu"


def test_the_page_is_in_step() -> None:
    """Written by `python -m build_support.kernel_reference`."""
    assert kernel_reference.PAGE.read_text(encoding="utf-8") == kernel_reference.page()


def test_every_name_is_documented() -> None:
    """Each public function, struct or macro has a comment."""
    for header in kernel_reference.HEADERS:
        text = (kernel_reference.INCLUDE / f"{header}.h").read_text(encoding="utf-8")
        documented = {entry.name for entry in kernel_reference.read_header(header)[1]}
        defined = set(re.findall(r"DEVICE_FUNCTION [\w<>,() ]*?(\w+)\(", text))
        defined |= set(re.findall(r"#define (\w+)", text))
        missing = {
            name
            for name in defined - documented
            if not name.lower().startswith("uhal_") and name != "atomic_"
        }
        assert not missing, (header, missing)


def test_every_name_is_used_in_the_conformance_suite() -> None:
    kernels = KERNELS.read_text(encoding="utf-8")
    for header in kernel_reference.HEADERS:
        for entry in kernel_reference.read_header(header)[1]:
            name = entry.name.partition(" ")[0]
            if name not in ("scopes", "WARP_LANES", "f32x2"):
                assert re.search(rf"\b{name}\b", kernels), name

"""The assembler of `.topsfb` files: Ubridge's modules, and containers of other host builds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from simulators.topsfb import of_host, ubridge
from tests.conformance.rows import KERNELS, ROOT, compile_for_host
from tops_backend.entries import families, signatures
from uhal.images.topsfb import read_gcu, read_topsfb
from uhal_conformance.kept_folders import kept_folder


def test_every_entry_of_ubridge_is_in_a_container() -> None:
    found: dict[str, tuple[str, ...]] = {}
    for module in ubridge.modules():
        entries = read_topsfb(ubridge.assemble(module))
        assert [one.target for one in entries] == list(ubridge.TARGETS)
        for one in entries:
            image = read_gcu(one.payload)
            assert image.target == one.target
            found[module] = tuple(image.signatures)
            for name, signature in image.signatures.items():
                declared = signatures()[name]
                sizes = [(each.offset, each.size, each.dtype) for each in signature]
                assert sizes == [(each.offset, each.size, each.dtype) for each in declared]
    assert found == families()
    assert sum(len(names) for names in found.values()) == 320


def test_files_that_are_up_to_date_stay(tmp_path: Path) -> None:
    ubridge.write_all(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert len(before) == 17
    stale = tmp_path / "unary.topsfb"
    stale.write_bytes(b"")
    before.pop(stale)
    ubridge.write_all(tmp_path)
    assert stale.read_bytes() == ubridge.assemble("unary")
    assert all(path.stat().st_mtime_ns == at for path, at in before.items())


def test_a_host_build_becomes_a_container(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    library = compile_for_host(KERNELS / "globals.cu", kept_folder(request.config, "kernels"))
    image = tmp_path / "globals.topsfb"
    command = [sys.executable, "-m", "simulators.topsfb.of_host", str(library), str(image)]
    subprocess.run(command, cwd=ROOT, check=True)
    (entry,) = read_topsfb(image.read_bytes())
    declared = {name: one.declaration for name, one in read_gcu(entry.payload).signatures.items()}
    assert declared == {"read_table": "f32*", "count": "u64", "who": "u32*"}
    assert of_host.read(library).variables == {"table": 256, "counter": 8}
    lines = Path(f"{image}.sig").read_text(encoding="utf-8").splitlines()
    assert lines == ["read_table: f32 *out", "count: u64 by", "who: u32 *out"]

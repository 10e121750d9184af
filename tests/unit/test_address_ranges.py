"""The table of a runtime's allocations, against a model, with addresses at ends of ranges."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.host_runtime.driver import ROOT
from tests.requirements import missing
from tests.sampling import rounds

SOURCE = """\
#include "address_ranges.h"
typedef struct { uhal_range place; uint64_t name; } record;
static uhal_ranges ranges = UHAL_RANGES_OF(record);
int add(const record *one) { return uhal_ranges_add(&ranges, one); }
int take(uint64_t start, record *one) { return uhal_ranges_remove(&ranges, start, one); }
int find(uint64_t address, record *one) { return uhal_ranges_find(&ranges, address, one); }
"""


class Record(ctypes.Structure):
    _fields_ = (
        ("start", ctypes.c_uint64),
        ("bytes", ctypes.c_size_t),
        ("name", ctypes.c_uint64),
    )


@pytest.fixture
def table(tmp_path: Path) -> ctypes.CDLL:
    compiler = shutil.which("cc")
    if compiler is None:
        missing("no C compiler here")
    source, library = tmp_path / "ranges.c", tmp_path / "ranges.so"
    source.write_text(SOURCE, encoding="utf-8")
    include = f"-I{ROOT / 'uhal' / 'emulation'}"
    command = [compiler, "-shared", "-fPIC", include, source, "-o", library]
    subprocess.run(command, check=True)
    loaded = ctypes.CDLL(str(library))
    for name in ("take", "find"):
        getattr(loaded, name).argtypes = (ctypes.c_uint64, ctypes.POINTER(Record))
    return loaded


def test_what_lies_at_an_address(table: ctypes.CDLL, rng: np.random.Generator) -> None:
    # most ranges are adjacent, some follow a gap
    sizes = rng.integers(1, 9, 200)
    gaps = rng.integers(0, 3, 200) * (rng.random(200) < 0.3)
    starts = 4096 + np.cumsum(sizes + gaps) - sizes
    pairs = zip(starts.tolist(), sizes.tolist(), strict=True)
    every = [Record(start, size, name) for name, (start, size) in enumerate(pairs)]
    here: dict[int, Record] = {}
    record = Record()
    for _ in range(rounds(500, 20_000)):
        one = every[int(rng.integers(len(every)))]
        if one.start not in here:
            assert table.add(ctypes.byref(one))
            here[one.start] = one
        elif rng.random() < 0.4:
            assert table.take(one.start, record) and record.name == here.pop(one.start).name
        assert not table.take(one.start + one.bytes + 10_000, record)
        for address in (one.start - 1, one.start, one.start + one.bytes - 1, one.start + one.bytes):
            found = table.find(address, record)
            expected = [r for r in here.values() if r.start <= address < r.start + r.bytes]
            assert [record.name] * found == [r.name for r in expected]

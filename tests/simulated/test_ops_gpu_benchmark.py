"""The benchmark of operations on a GPU runs from end to end; only its figures need a GPU."""

from __future__ import annotations

import re

from tests.simulated.process import needs_simulator, run_python

pytestmark = needs_simulator


def test_it_runs() -> None:
    told = run_python("-m", "benchmarks.ops_gpu", "--smoke")
    for name in ("copy", "silu", "add", "to f16", "softmax", "rms_norm", "layer_norm"):
        assert re.search(rf"^{name} +f32 +\d+\.\d\d$", told, re.MULTILINE), told
    for dtype in ("f16", "bf16"):
        assert re.search(
            rf"^{dtype} +32 x 48 x 16: .*tensor_64 .*tiled .*; chosen: ", told, re.M
        ), told
    assert re.search(r"^f64 +32 x 48 x 16: tiled ", told, re.MULTILINE), told

"""torch on the CPU: operations on few elements, where the overhead counts."""

from __future__ import annotations

import sys
from typing import Any

from benchmarks.measuring import Form, Gap, control, load, loop, measure, pin, report

ELEMENTS = 16
GAPS = (Gap("launch", "", "torch has no launches on a CPU, only operations"),)


def main(library: str, backend: str) -> None:
    pin()
    torch: Any = load("torch")
    torch.set_num_threads(1)
    x, y = torch.rand(ELEMENTS), torch.rand(ELEMENTS)
    out = torch.empty(ELEMENTS)
    names = {"torch": torch, "x": x, "y": y, "out": out}
    with torch.inference_mode():
        forms = [
            control(),
            Form("add", "op on 16 elements", loop("torch.add(x, y)", **names)),
            Form("add, out=", "op on 16 elements", loop("torch.add(x, y, out=out)", **names)),
            Form("exp", "op on 16 elements", loop("torch.exp(x)", **names)),
        ]
        rows = measure("torch", forms, None)
    report(rows, gaps=GAPS, versions={"torch": torch.__version__})


if __name__ == "__main__":
    main(*sys.argv[1:])

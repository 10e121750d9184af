"""uhal's launches on the host with torch's CPU tensors, in the Python that has torch."""

from __future__ import annotations

import sys
from typing import Any

from benchmarks.measuring import control, load, measure, pin, report
from benchmarks.workers.uhal_calls import Opened, keywords


def main(library: str, backend: str) -> None:
    pin()
    torch: Any = load("torch")
    opened = Opened(backend, library)
    x, out = torch.zeros(1024), torch.zeros(1024)
    eight = (1000, 1, None, x, out, 1.0, 2.0, 3)
    forms = [
        control(),
        keywords(opened, "launch, torch tensors", "three", (1000, x, out)),
        keywords(opened, "launch, torch tensors", "eight", eight),
    ]
    rows = measure("uhal, torch tensors", forms, opened.driver)
    report(rows, versions={"torch": torch.__version__})


if __name__ == "__main__":
    main(*sys.argv[1:])

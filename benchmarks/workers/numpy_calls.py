"""numpy's forms of operations on few elements, for comparison with uhal."""

from __future__ import annotations

import numpy as np

from benchmarks.measuring import Form, control, loop, measure, pin, report


def main() -> None:
    pin()
    rng = np.random.default_rng()
    x, y = (rng.random((4, 4), np.float32) for _ in range(2))
    names = {"numpy": np, "x": x, "y": y, "out": np.empty_like(x)}
    forms = [control()]
    for name, statement in (
        ("add", "numpy.add(x, y)"),
        ("add, out=", "numpy.add(x, y, out=out)"),
        ("add, operator", "x + y"),
        ("multiply by a number", "x * 1.5"),
        ("exp", "numpy.exp(x)"),
        ("sum", "x.sum()"),
    ):
        forms.append(Form(name, "op on 16 elements", loop(statement, **names)))
    report(measure("numpy", forms, None), versions={"numpy": np.__version__})


if __name__ == "__main__":
    main()

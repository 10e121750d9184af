"""The list of all driver functions, `simulators/cuda/functions.def`, as tests read it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

LIST = Path(__file__).resolve().parents[2] / "simulators" / "cuda" / "functions.def"
_ROW = re.compile(r"^(SIMULATED|PER_THREAD|REFUSED|REFUSED_PER_THREAD)\((.*)\)$", re.MULTILINE)


class Form(NamedTuple):
    """One form of a driver function; `cuMemAlloc_v2` is a form of `cuMemAlloc`."""

    name: str
    symbol: str
    since: int
    suffix: str
    """Suffix of the symbol for which a null stream is the thread's default stream; empty if there
    is no such symbol."""
    reason: str
    """Reason why the function is refused; empty if the function is simulated."""

    @property
    def symbols(self) -> tuple[str, ...]:
        """Return the symbols that the library exports for this form."""
        return (self.symbol, self.symbol + self.suffix) if self.suffix else (self.symbol,)


def forms() -> list[Form]:
    """Every row of the list."""
    text = LIST.read_text(encoding="utf-8")
    reasons = {
        name: "".join(re.findall(r'"([^"]*)"', words))
        for name, words in re.findall(r"^REASON\((\w+),((?:\s*\"[^\"]*\")+)\)$", text, re.MULTILINE)
    }
    found = []
    for kind, arguments in _ROW.findall(text):
        name, symbol, since, *rest = arguments.split(", ")
        suffix = rest.pop(0) if kind.endswith("PER_THREAD") else ""
        if "REFUSED" in kind:
            found.append(Form(name, symbol, int(since), suffix, reasons[rest.pop()]))
        elif not rest:
            found.append(Form(name, symbol, int(since), suffix, ""))
    return found

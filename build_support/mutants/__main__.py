"""Plant mistakes in a copy of the checkout one by one, and run the nearest tests.

    python -m build_support.mutants [--seed N] [--python COUNT] [--sources COUNT] [--compiled]
                                    [--under FOLDER] [--record FILE] [--every-case]

The seed draws mistakes in Python and in compiled sources. A table lists more mistakes in compiled
sources. All these are built once and enabled one at a time. The output lists survivors, and tests
that find a mistake but that `make test CHANGED=1` would omit. The copy is `build/flavours/mutants`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from build_support.changed import reached
from build_support.flavoured import mirror
from build_support.imports import PRODUCT, ROOT
from build_support.mutants import compiled, python, sources
from build_support.mutants.bench import Bench
from build_support.mutants.mistakes import MISTAKES
from build_support.mutants.near import nearest
from build_support.native import Flavour

KILLED = "killed"
LEFT_OUT = "killed by a test that CHANGED leaves out"
NOT_DRAWN = "killed by a case that the seed did not draw"
SURVIVED = "survived"
UNKNOWN = "not judged, the test fails without a mistake"


@dataclass(frozen=True)
class Planted:
    """A mistake, and the test files to run for it."""

    what: str
    path: str
    tests: Sequence[str]
    source: str = ""
    switch: int = 0


@dataclass(frozen=True)
class Judged:
    """The verdict on a mistake, and the test that failed."""

    what: str
    verdict: str
    killer: str = ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print each mistake's verdict; return 1 for a survivor or an omitted test."""
    options = _options(arguments)
    print(f"mutants: seed {options.seed} (--seed {options.seed} repeats it)", flush=True)
    judged = _judged_before(options.record)
    mistakes = _in_sources(options)
    bench = Bench(_built(compiled.with_switches(ROOT, mistakes)), options.seed)
    for planted in _planted(options, mistakes):
        if planted.what not in judged:
            found = _judge(bench, planted, every_case=options.every_case)
            judged[planted.what] = found
            print(f"{found.verdict}: {found.what} ({found.killer or 'none'})", flush=True)
            if options.record:
                with options.record.open("a", encoding="utf-8") as record:
                    record.write(json.dumps(asdict(found), ensure_ascii=False) + "\n")
    unsound = bench.failing({one.killer for one in judged.values() if one.killer})
    for one in judged.values():
        if one.killer in unsound:
            print(f"{UNKNOWN}: {one.what} ({one.killer})")
    counts = Counter(UNKNOWN if one.killer in unsound else one.verdict for one in judged.values())
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.most_common()))
    return int(counts.keys() != {KILLED})


def _judge(bench: Bench, planted: Planted, every_case: bool) -> Judged:
    with bench.planted(planted.path, planted.source, planted.switch):
        killer = bench.killer(planted.tests)
        drawn = killer is not None or not every_case
        if not drawn:
            killer = bench.killer(planted.tests, every_case=True)
    if killer is None:
        return Judged(planted.what, SURVIVED)
    verdict = KILLED if drawn else NOT_DRAWN
    if killer.file not in reached([planted.path]):
        verdict = LEFT_OUT
    return Judged(planted.what, verdict, killer.test)


def _in_sources(options: argparse.Namespace) -> list[compiled.Compiled]:
    """Return the table's mistakes in compiled sources, and those that the seed draws."""
    rng = random.Random(options.seed)
    table = MISTAKES if options.compiled else ()
    drawn = sources.draw(ROOT, options.sources, rng, options.under) if options.sources else ()
    return [*(one for one in table if one.path.startswith(options.under)), *drawn]


def _planted(
    options: argparse.Namespace, mistakes: Sequence[compiled.Compiled]
) -> Iterator[Planted]:
    """Yield the mistakes that the options ask for."""
    rng = random.Random(options.seed)
    for mutant in python.draw(ROOT, _folders(options.under), options.python, rng):
        what = f"{mutant.path}:{mutant.line}: {mutant.before} → {mutant.after}"
        tests = nearest(mutant.path, mutant.line, ROOT)
        yield Planted(what, mutant.path, tests, source=mutant.source)
    for number, one in enumerate(mistakes, 1):
        what = f"{one.path}: {one.text} → {one.replacement}"
        yield Planted(what, one.path, one.tests, switch=number)


def _judged_before(record: Path | None) -> dict[str, Judged]:
    if record is None or not record.exists():
        return {}
    lines = record.read_text("utf-8").splitlines()
    return {one.what: one for one in (Judged(**json.loads(line)) for line in lines)}


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m build_support.mutants", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--python", type=int, default=40, help="how many mistakes in Python")
    parser.add_argument("--compiled", action="store_true", help="all mistakes of the table, too")
    parser.add_argument("--sources", type=int, default=0, help="how many in compiled sources")
    parser.add_argument("--under", default="", help="only in files whose path begins with this")
    parser.add_argument("--record", type=Path, help="keep verdicts here, and skip those it has")
    parser.add_argument(
        "--every-case",
        action="store_true",
        help="ask about survivors again, with the cases of tests that the seed leaves out",
    )
    return parser.parse_args(arguments)


def _built(sources: Mapping[str, str]) -> Path:
    """Return a copy of the checkout with every switch built in."""
    copy = mirror(Flavour("mutants"))
    for path, text in sources.items():
        (copy / path).write_text(text, encoding="utf-8")
    # most parts are equal to the checkout's
    (copy / "build" / "cache").mkdir(parents=True, exist_ok=True)
    for kept in (ROOT / "build" / "cache").iterdir():
        if not (copy / "build" / "cache" / kept.name).exists():
            os.link(kept, copy / "build" / "cache" / kept.name)
    for command in (
        ("setup.py", "-q", "build_ext", "--inplace"),
        ("-m", "simulators.build"),
    ):
        subprocess.run([sys.executable, *command], cwd=copy, check=True)
    # tests ask git for the files of the checkout
    for words in (("init", "-q"), ("add", "-A")):
        subprocess.run(["git", *words], cwd=copy, check=True)
    return copy


def _folders(under: str) -> list[str]:
    """Return the folders of the product that hold Python."""
    packages = (*PRODUCT, "simulators/ptx", "simulators/topsfb")
    files = (path for package in packages for path in (ROOT / package).rglob("*.py"))
    folders = sorted({path.parent.relative_to(ROOT).as_posix() for path in files})
    chosen = [folder for folder in folders if f"{folder}/".startswith(under)]
    if not chosen:
        raise SystemExit(f"--under: expected a folder of the product, got {under!r}")
    return chosen


if __name__ == "__main__":
    raise SystemExit(main())

"""Choice of the test files nearest to a line of the product."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

from build_support.changed import EVERYTHING, importing, reached

FILES = 8
SECONDS = 20.0
"""Longest time of a chosen test file in the last whole run; the first file may take longer."""
QUICK = 0.3
"""A file that takes less time is not one of the `FILES`."""
START = 3.0
"""Seconds that pytest takes to begin."""
ABOUT_THE_LINE = 5
"""Weight of a name around the line, or of a test file's place, relative to other names."""
_TIMES = ".pytest_cache/v/uhal/test_seconds"


def nearest(path: str, line: int, root: Path) -> list[str]:
    """Return the test files with most names of a module, best value for their time first.

    A name weighs less if many files have it, and more in a test of its module's folder.
    Imports do not count, so the result may name tests that `CHANGED` does not select.
    """
    defined = _names(path, line, root)
    named = {
        test: {*re.findall(r"\w+", text), *re.findall(r"[\w.]+", text)}
        for test, text in _texts(root).items()
    }
    rarity = Counter(name for names in named.values() for name in names & defined.keys())
    own, of_users = _own_tests(path, root), _tests_of_users(path, root)
    weights = {
        test: _shared_folders(path, test)
        * (
            sum(defined[name] / rarity[name] for name in names & defined.keys())
            + ABOUT_THE_LINE * own.count(test)
            + (test in of_users)
        )
        for test, names in named.items()
    }
    if not any(weights.values()):
        weights = dict.fromkeys(reached([path]), 1.0)  # no test names anything of the module
    return _in_time(weights, root)


def nearest_of(path: str, line: int, root: Path, patterns: Sequence[str]) -> list[str]:
    """Return the test files with most words of a compiled source, of those that patterns name.

    A word weighs less if many of these files have it, and more near the line. Files that the first
    pattern names weigh more.
    """
    named = {
        test: words
        for test, words in _words(root).items()
        if any(fnmatch(test, f"tests/{pattern}.py") for pattern in patterns)
    }
    lines = (root / path).read_text("utf-8").splitlines()
    around = lines[max(0, line - ABOUT_THE_LINE) : line + ABOUT_THE_LINE]
    own = dict.fromkeys(_long_words("\n".join(lines)), 1.0)
    own |= dict.fromkeys(_long_words("\n".join((path, *around))), float(ABOUT_THE_LINE))
    rarity = Counter(word for found in named.values() for word in found & own.keys())
    stem = Path(path).stem
    weights = {
        test: sum(own[word] / rarity[word] for word in found & own.keys())
        * (ABOUT_THE_LINE if stem in Path(test).stem else 1)
        * (ABOUT_THE_LINE if fnmatch(test, f"tests/{patterns[0]}.py") else 1)
        + 1 / len(named)
        for test, found in named.items()
    }
    return _in_time(weights, root)


def _in_time(weights: Mapping[str, float], root: Path) -> list[str]:
    """Return the heaviest tests that fit the time, best value for their time first."""
    ranked = sorted((test for test in weights if weights[test]), key=lambda test: -weights[test])
    seconds = _seconds(root)
    chosen: list[str] = []
    spent = 0.0
    slow = 0
    for test in ranked[: 3 * FILES]:
        took = seconds.get(test, QUICK)
        if not chosen or (slow < FILES and spent + took <= SECONDS):
            spent += took
            slow += took >= QUICK
            chosen.append(test)
    return sorted(chosen, key=lambda test: -weights[test] / (START + seconds.get(test, 0.0)))


def _own_tests(path: str, root: Path) -> list[str]:
    """Return tests of a module's folder or package, of its name, and the few that it can reach.

    In a folder of tests for a package, a part of the test's name is enough. A name whose words
    begin words of the module's path counts once for each word.
    """
    module = Path(path)
    words = re.findall(r"[a-z0-9]+", module.with_suffix("").as_posix())
    tests = [Path(test) for test in _texts(root)]
    of_words = [
        test
        for test in tests
        if all(any(whole.startswith(one) for whole in words) for one in test.stem.split("_")[1:])
        for _ in test.stem.split("_")[1:]
    ]
    beside = [test for test in tests if test.parent == "tests" / module.parent]

    of_package = _named(module.parent.name, module.parts[0], root)
    of_module = _named(module.stem.strip("_"), module.parts[0], root)
    reaching = [test for test in reached([path]) if test not in EVERYTHING]
    few = reaching if len(reaching) <= 2 * FILES else []
    return [*few, *(test.as_posix() for test in (*(beside or of_package), *of_module, *of_words))]


def _tests_of_users(path: str, root: Path) -> set[str]:
    """Return tests of the names of the modules that import the module, if these are few."""
    users = [Path(user) for user in importing(path)]
    if len(users) > 2 * FILES:
        return set()
    found = (_named(user.stem.strip("_"), Path(path).parts[0], root) for user in users)
    return {test.as_posix() for tests in found for test in tests}


def _named(name: str, package: str, root: Path) -> list[Path]:
    """Return tests with a name; in a folder of tests for the package, a part of it is enough."""
    return [
        test
        for test in map(Path, _texts(root))
        if test.stem == f"test_{name}" or (package in test.parts and name in test.stem.split("_"))
    ]


def _shared_folders(path: str, test: str) -> int:
    """Return a factor for the number of folders that both paths name."""
    return (1 + len({*Path(path).parts[:-1]} & {*Path(test).parts[:-1]})) ** 2


def _names(path: str, line: int, root: Path) -> Mapping[str, float]:
    """Return a module's own names and definitions, with the weight of each name."""
    own = Path(path)
    found = dict.fromkeys((own.stem.strip("_"), ".".join(own.with_suffix("").parts)), 1.0)
    for node in ast.walk(ast.parse((root / path).read_text("utf-8"))):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("__"):
            around = node.lineno <= line <= (node.end_lineno or node.lineno)
            found[node.name] = ABOUT_THE_LINE if around else 1.0
    return found


@cache
def _texts(root: Path) -> dict[str, str]:
    return {
        path.relative_to(root).as_posix(): path.read_text("utf-8")
        for path in sorted((root / "tests").rglob("test_*.py"))
    }


@cache
def _words(root: Path) -> dict[str, set[str]]:
    return {test: _long_words(text) for test, text in _texts(root).items()}


def _long_words(text: str) -> set[str]:
    """Return a text's names, and the words that a name joins by underlines."""
    return {*re.findall(r"\w{4,}", text), *re.findall(r"[A-Za-z0-9]{4,}", text)}


@cache
def _seconds(root: Path) -> Mapping[str, float]:
    """Return the wall time of each file in the last whole run here (`tests/file_order.py`)."""
    times = root / _TIMES
    found: Mapping[str, float] = json.loads(times.read_text("utf-8")) if times.exists() else {}
    return found

"""Mistakes in Python sources, drawn by a seed: an operator of cosmic-ray at a place."""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

OPERATORS = (
    *("AddNot", "ReplaceTrueWithFalse", "ReplaceFalseWithTrue", "ReplaceAndWithOr"),
    *("ReplaceOrWithAnd", "ReplaceBreakWithContinue", "ReplaceContinueWithBreak"),
    *("NumberReplacer", "ReplaceComparisonOperator", "ReplaceUnaryOperator"),
    *("ReplaceBinaryOperator_Add_Sub", "ReplaceBinaryOperator_Sub_Add"),
    *("ReplaceBinaryOperator_Mul_Add", "ReplaceBinaryOperator_Div_FloorDiv"),
    *("ReplaceBinaryOperator_FloorDiv_Mod", "ReplaceBinaryOperator_Mod_FloorDiv"),
    *("ReplaceBinaryOperator_LShift_RShift", "ReplaceBinaryOperator_RShift_LShift"),
    *("ReplaceBinaryOperator_BitAnd_BitOr", "ReplaceBinaryOperator_BitOr_BitAnd"),
)
"""Names of operators, or prefixes of them: an engineer seldom takes a power for a shift."""
_IDENTITY = re.compile("(Eq|Lt|LtE|Gt|GtE)_(Is|IsNot)$")
"""Identity of numbers and texts in place of their order: seldom an engineer's mistake."""


@dataclass(frozen=True)
class Mutant:
    """A source with a mistake in it."""

    path: str
    operator: str
    line: int
    before: str
    after: str
    source: str


def draw(root: Path, folders: Sequence[str], count: int, rng: random.Random) -> Iterator[Mutant]:
    """Yield mutants that differ in meaning from their module, from each folder in turn."""
    files = {
        folder: [path for path in sorted((root / folder).glob("*.py")) if path.stat().st_size]
        for folder in folders
    }
    found = 0
    turns = 0
    while found < count and turns < 20 * count:
        folder = folders[turns % len(folders)]
        turns += 1
        if files[folder]:
            mutant = _mutant(root, rng.choice(files[folder]), rng)
            if mutant is not None:
                found += 1
                yield mutant


def _mutant(root: Path, path: Path, rng: random.Random) -> Mutant | None:
    plugins, mutating = import_module("cosmic_ray.plugins"), import_module("cosmic_ray.mutating")
    code = path.read_text("utf-8")
    every = [(name, name.partition("/")[2]) for name in plugins.operator_names()]
    names = [
        name for name, short in every if short.startswith(OPERATORS) and not _IDENTITY.search(short)
    ]
    for name in rng.sample(names, len(names)):
        operator = plugins.get_operator(name)()
        places = _places(code, operator)
        if not places:
            continue
        changed = mutating.mutate_code(code, operator, rng.randrange(places))
        if changed is None or _meaning(changed) in (None, _meaning(code)):
            continue
        pairs = zip(code.splitlines(), changed.splitlines(), strict=False)
        line, (before, after) = next(
            (number, pair) for number, pair in enumerate(pairs, 1) if pair[0] != pair[1]
        )
        relative = path.relative_to(root).as_posix()
        return Mutant(relative, name, line, before.strip(), after.strip(), changed)
    return None


def _places(code: str, operator: Any) -> int:
    """Return the number of places where an operator can change a source."""
    syntax = import_module("cosmic_ray.ast")

    class Counter(syntax.Visitor):  # type: ignore[name-defined, misc]
        count = 0

        def visit(self, node: Any) -> Any:
            self.count += len(list(operator.mutation_positions(node)))
            return node

    counter = Counter()
    counter.walk(syntax.get_ast(code))
    return counter.count


class _Run(ast.NodeTransformer):
    """Removes what a program that works does not depend on.

    These are annotations, imports for types, options of dataclasses, and a main program's test.
    """

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = ast.Constant(None)
        return self.generic_visit(node)

    def visit_If(self, node: ast.If) -> ast.AST:
        if ast.unparse(node.test) == "TYPE_CHECKING":
            return ast.Pass()
        if "__name__" in ast.unparse(node.test):
            node.test = ast.Constant(None)
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.decorator_list = []
        return self.generic_visit(node)


def _meaning(code: str) -> str | None:
    """Return the syntax tree of a source; None for a syntax error."""
    try:
        return ast.dump(_Run().visit(ast.parse(code)))
    except SyntaxError:
        return None

"""Checks that a change of words changes nothing else.

    python -m build_support.words_only              # the working tree against HEAD
    python -m build_support.words_only HEAD~1 HEAD  # one commit against another

Comments, docstrings, messages of errors and text on pages may differ. Anything else is printed and
makes the command fail: code, values in messages, C strings, code blocks on pages, other files.
"""

from __future__ import annotations

import ast
import difflib
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path, PurePath
from typing import Any

ROOT = Path(__file__).parents[1]

SPEAKERS = re.compile(r"(Error|Exception|Warning|warn|fail|skip|xfail|exit)$")
"""Names of functions and classes whose texts are messages."""
SPEAKING_KEYWORDS = {"advice", "description", "detail", "epilog", "help", "match", "reason"}

STRINGS = r'"(?:\\.|[^"\\\n])*"' + r"|'(?:\\.|[^'\\\n])*'"
CYTHON = re.compile(
    r"(?P<comment>\#[^\n]*)"
    r'|(?P<string>(?<!\w)[rbfucRBFU]{0,2}(?:"""(?:\\.|[^\\])*?"""|' + STRINGS + r"))"
    r"|(?P<line>\n)|(?P<blank>[ \t\f]+|\\\n)|(?P<code>\w+|.)",
    re.DOTALL,
)
C = re.compile(
    r"(?P<comment>//(?:\\\n|[^\n])*|/\*.*?\*/)"
    r'|(?P<string>R"(?P<fence>[^(\s]*)\(.*?\)(?P=fence)"|`[^`]*`|' + STRINGS + r")"
    r"|(?P<line>\n)|(?P<blank>[ \t\f]+|\\\n)"
    r"|(?P<code>\d[\w.']*|\w+|\+\+|--|->|&&|\|\||::|##|<<=?|>>=?|[-+*/%&|^=!<>]=|.)",
    re.DOTALL,
)
CODE_BLOCK = re.compile(r"^```.*?^```|^    .*?$", re.DOTALL | re.MULTILINE)


class _WithoutWords(ast.NodeTransformer):
    """Drops docstrings and the words of messages, but keeps the values in messages."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        """Drop a string that stands alone."""
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            return None
        return self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        """Drop the words of an exception."""
        return _WithoutMessages().generic_visit(node)

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        """Drop the words of an assertion; its condition is code."""
        if node.msg is not None:
            node.msg = _WithoutMessages().visit(node.msg)
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Drop the words given to an exception's class, to `warn`, `fail` and the like."""
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if SPEAKERS.search(name):
            node.args = [_WithoutMessages().visit(one) for one in node.args]
        return self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> ast.AST:
        """Drop the words of `help=`, `reason=` and the like."""
        if node.arg in SPEAKING_KEYWORDS:
            node.value = _WithoutMessages().visit(node.value)
        return self.generic_visit(node)


class _WithoutMessages(_WithoutWords):
    """Drops every string that is no identifier."""

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        """Drop a text."""
        is_text = isinstance(node.value, str) and not node.value.isidentifier()
        return ast.Constant("") if is_text else node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        """Keep the values of a message, in any order."""
        values = [one for one in node.values if isinstance(one, ast.FormattedValue)]
        kept: list[Any] = [self.generic_visit(one) for one in values]
        return ast.Tuple(sorted(kept, key=ast.dump), ast.Load()) if kept else ast.Constant("")


def python_code(source: str) -> list[str]:
    """Lines of the syntax tree without docstrings and messages."""
    return ast.dump(_WithoutWords().visit(ast.parse(source)), indent=1).splitlines()


def cython_code(source: str) -> list[str]:
    """Logical lines without comments, docstrings and the words of exceptions."""
    found: list[str] = []
    line: list[str] = []
    depth, indent = 0, ""
    for token in CYTHON.finditer(source + "\n"):
        kind, text = token.lastgroup, token.group()
        if kind == "line" and depth == 0:
            if line and any(one[0] not in "\"'" for one in line):
                found.append(indent + " ".join(_without_message(line)))
            line, indent = [], ""
        elif kind == "blank" and not line:
            indent = text
        elif kind in ("string", "code"):
            depth += (text in "([{") - (text in ")]}")
            line.append(text)
    return found


def _without_message(line: list[str]) -> list[str]:
    if line[0] != "raise":
        return line
    values = [one for text in line if '"' in text for one in re.findall(r"\{[^{}]*\}", text)]
    return [one for one in line if '"' not in one] + sorted(values)


def c_code(source: str) -> list[str]:
    """Tokens without comments; a directive keeps the end of its line."""
    found, first = [], ""
    for token in C.finditer(source + "\n"):
        kind, text = token.lastgroup, token.group()
        if kind == "line":
            if first == "#":
                found.append("end of directive")
            first = ""
        elif kind in ("string", "code"):
            first = first or text
            if found[-2:] == ["#", "define"] and source[token.end() : token.end() + 1] == "(":
                text += "()"  # a macro with parameters
            found.append(text)
    return found


def code_blocks(page: str) -> list[str]:
    """Lines of code on a page."""
    return "\n".join(CODE_BLOCK.findall(page)).splitlines()


CODE_OF: dict[str, Callable[[str], list[str]]] = {
    **dict.fromkeys((".py", ".pyi"), python_code),
    **dict.fromkeys((".pyx", ".pxi", ".pxd"), cython_code),
    **dict.fromkeys((".c", ".h", ".cpp", ".hpp", ".cu", ".def", ".js"), c_code),
    ".md": code_blocks,
}


def differences(name: str, before: str, after: str) -> Iterator[str]:
    """Yield the differences between two versions of a file other than words."""
    code = CODE_OF.get(PurePath(name).suffix, str.splitlines)
    lines = difflib.unified_diff(code(before), code(after), lineterm="", n=1)
    yield from (f"{name}: {line}" for line in list(lines)[2:])


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def main(base: str = "HEAD", head: str = "") -> int:
    """Print the differences of two commits, by default of HEAD and the working tree."""
    found = []
    for line in _git("diff", "--name-status", "--no-renames", base, *head.split()).splitlines():
        status, name = line.split("\t")
        if status != "M":
            found.append(f"{name}: added or deleted")
            continue
        after = _git("show", f"{head}:{name}") if head else (ROOT / name).read_text("utf-8")
        found += differences(name, _git("show", f"{base}:{name}"), after)
    print("\n".join(found) or "Only words differ.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

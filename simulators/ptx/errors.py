"""Errors in a PTX text, with messages that name the line."""

from __future__ import annotations


class PtxError(Exception):
    """A PTX text cannot be used. `line` counts from 1; 0 stands for the whole text."""

    def __init__(self, problem: str, line: int = 0) -> None:
        super().__init__(f"line {line}: {problem}" if line else problem)
        self.problem = problem
        self.line = line


class PtxSyntaxError(PtxError):
    """The text is not PTX: a real driver would refuse it at load."""


class UnsupportedPtxError(PtxError):
    """PTX that looks valid, but that this translator does not execute."""

"""CI has every file and program whose absence skips tests elsewhere."""

from __future__ import annotations

import pytest

from tests.requirements import needed_module


@pytest.mark.parametrize("name", ["gguf", "jinja2", "safetensors", "sentencepiece", "tokenizers"])
def test_ci_skips_no_test_for_want_of_an_extra(name: str) -> None:
    needed_module(name)

"""What a test does without something that it needs."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def missing(reason: str) -> NoReturn:
    """Fail in CI, where the project's own scripts bring it; tell a developer why it is skipped."""
    if os.environ.get("CI"):
        pytest.fail(f"in CI this must be there: {reason}", pytrace=False)
    pytest.skip(reason)

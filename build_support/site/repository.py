"""The repository that the pages of the site link to."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path


def repository_links(root: Path) -> dict[str, str]:
    """Return furo's options for links to the sources of pages, from the clone's `origin`.

    They are empty for a clone without an origin, or with an origin that has no page on the web.
    """
    command = ["git", "remote", "get-url", "origin"]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, encoding="utf-8")
    except FileNotFoundError:
        return {}
    address = re.sub(r"^(?:ssh://)?git@([^:/]+)[:/]", r"https://\1/", done.stdout.strip())
    address = re.sub(r"^https://[^@/]*@", "https://", address)
    if not re.match(r"https://[\w.-]+/.", address):
        return {}
    return {
        "source_repository": f"{address.removesuffix('.git').rstrip('/')}/",
        "source_branch": "main",
        "source_directory": "docs/",
    }

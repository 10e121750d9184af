"""Collectives between GCUs by Enflame's ECCL: `uhal.collectives` under its former name."""

from uhal.collectives import Communicator, group, nccl, unique_id


def version() -> str:
    """Return the library's version, such as `3.1.0`."""
    return nccl.version("tops")


__all__ = ["Communicator", "group", "unique_id", "version"]

"""The rank of this process, by the variables of the launcher that started it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from uhal.errors import ArgumentValueError

_LAUNCHERS = {
    "torchrun": ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    "Open MPI": (
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
    ),
    "MPICH or Intel MPI": ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    "Slurm": ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"),
}
"""Variables of rank, size and local rank. The innermost launcher comes first, because srun may
start torchrun.

Slurm's batch script has `SLURM_PROCID` and `SLURM_NTASKS`, and is no rank.
"""


@dataclass(frozen=True)
class Place:
    """A process's rank among the processes of its job."""

    rank: int
    ranks: int
    local_rank: int
    """Rank among the processes of this machine: the ordinal of the device to use."""
    launcher: str
    """Name of the launcher; empty without a launcher."""

    @classmethod
    def of(cls, variables: Mapping[str, str] = os.environ) -> Place:
        """Return the rank that the launcher gave; without a launcher, rank 0 of 1.

        Raises `ArgumentValueError` for variables that name no rank.
        """
        for launcher, names in _LAUNCHERS.items():
            if names[0] in variables and names[1] in variables:
                return cls._told(launcher, names, variables)
        return cls(0, 1, 0, "")

    @classmethod
    def _told(cls, launcher: str, names: tuple[str, ...], variables: Mapping[str, str]) -> Place:
        texts = [variables.get(name, "0").strip() for name in names]
        for name, text in zip(names, texts, strict=True):
            if not (text.isascii() and text.isdigit() and len(text) < 10):
                raise ArgumentValueError(
                    f"{name}: expected a number from {launcher}, got {text[:80]!r}. Start the "
                    f"program with {launcher}, or unset the variable."
                )
        rank, ranks, local_rank = map(int, texts)
        if rank >= ranks:
            raise ArgumentValueError(
                f"{names[0]}: expected a rank below {names[1]}={ranks}, got {rank}. Start the "
                f"program with {launcher}, or unset the variables."
            )
        return cls(rank, ranks, local_rank, launcher)


__all__ = ["Place"]

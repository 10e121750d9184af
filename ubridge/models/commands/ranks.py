"""Commands whose model is split among the processes of a launcher: rank 0 writes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout

from ubridge.core.fits import require
from ubridge.device.host import HOST
from uhal import Api, Device
from uhal.collectives import Communicator, Place, share, unique_id


class Ranks:
    """The processes of this command: a single one without a launcher."""

    def __init__(self) -> None:
        """Read the launcher's variables."""
        self.process = Place.of()
        self.group: Communicator | None = None

    @property
    def is_first(self) -> bool:
        """Whether this process writes the output."""
        return self.process.rank == 0

    def open(self, first: int, backend: str | None) -> Device:
        """Open this rank's device and make it current; `first` is rank 0's ordinal.

        Ranks on one machine take one device after the other. On the host each rank has the whole
        CPU.
        """
        Api.init(backend)
        local = 0 if Api.current() == HOST else self.process.local_rank
        return Api.quick_init(first + local, backend=backend)

    def join(self) -> Communicator | None:
        """Return the communicator of all ranks on the current device; `None` for one rank."""
        if self.process.ranks > 1:
            identifier = share(unique_id() if self.is_first else None)
            self.group = Communicator(self.process.ranks, identifier, self.process.rank)
        return self.group

    def require_prompt(self, prompt: str | None) -> None:
        """Refuse a prompt on standard input, which Open MPI's launcher never ends."""
        require(
            self.process.ranks == 1 or prompt not in (None, "-"),
            f"--prompt: expected a text, because {self.process.launcher} started several ranks, "
            "got standard input",
        )

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Discard the output of all ranks but the first. Errors are still printed."""
        if self.is_first:
            yield
            return
        with (
            open(os.devnull, "w", encoding="utf-8") as nowhere,
            redirect_stdout(nowhere),
            redirect_stderr(nowhere),
        ):
            yield

    def end(self) -> None:
        """Leave the group after the work of all ranks."""
        if self.group is not None:
            self.group.close()

"""Collectives: several devices, or several processes on CPUs, compute together.

Each process is a rank. A `Communicator` enqueues collectives on streams of its device: The host
backend uses MPI through `mpi4py` (`pip install "uhal-py[mpi]"`), GPUs use NCCL, and GCUs use ECCL.

- launchers.py: `Place`, the rank that a launcher gave this process.
- joining.py: the identifier of a group, and how it comes to every rank.
- communicator.py: `Communicator` and `group`.
- operands.py: the checks of a call's operands.
- engine.py: the interface of an engine that does the work.
- mpi.py: the engine of the host backend.
- nccl.py: the engine of NCCL and libraries with its functions.
- watch.py: connections between ranks, which name missing ranks.
"""

from uhal.collectives.communicator import Communicator, group
from uhal.collectives.joining import share, unique_id
from uhal.collectives.launchers import Place

__all__ = ["Communicator", "Place", "group", "share", "unique_id"]

"""Collectives: several devices, or several processes on CPUs, compute together.

Each process is a rank. A `Communicator` enqueues collectives on streams of its device: on the host
backend MPI's, by `mpi4py` (`pip install "uhal-py[mpi]"`), on GPUs NCCL's, on GCUs ECCL's.

- launchers.py: `Place`, the rank that a launcher gave this process.
- communicator.py: `Communicator` and the checks of its calls.
- engine.py: the interface of an engine that does the work.
- mpi.py: the engine of the host backend.
- nccl.py: the engine of NCCL and libraries with its functions.
"""

from uhal.collectives.communicator import Communicator, group, share, unique_id
from uhal.collectives.launchers import Place

__all__ = ["Communicator", "Place", "group", "share", "unique_id"]

"""Queues, signals and memory pools of AMD's own runtime, as our header describes them."""

from __future__ import annotations

from collections.abc import Callable

from tests.rocr import objects
from tests.rocr.machine import Machine

PROCESSOR = "gfx942"


def test_memory_of_every_pool(machine_with: Callable[[str], Machine], seed: int) -> None:
    machine_with(PROCESSOR).call(objects.pools, seed)


def test_signals_and_their_handlers(machine_with: Callable[[str], Machine]) -> None:
    machine_with(PROCESSOR).call(objects.signals)


def test_queues_take_packets_in_order(machine_with: Callable[[str], Machine]) -> None:
    assert machine_with(PROCESSOR).call(objects.queues) == 0

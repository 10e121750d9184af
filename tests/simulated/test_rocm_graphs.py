"""Graphs in HSA queues on the simulated runtime, which checks every packet and its fences."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.children import check_child
from tests.hsaco_writer import Argument, Kernel, write
from tests.sampling import rounds
from tests.simulated import rocm_graph_programs as programs
from tests.simulated.process import needs_simulator
from tests.simulated.test_rocm_backend import STEP, environment, folder, image

__all__ = ["environment", "folder", "image"]

pytestmark = needs_simulator

HIDDEN = [
    Argument(0, 8, "global_buffer"),
    Argument(8, 4, "hidden_block_count_x"),
    Argument(12, 4, "hidden_block_count_y"),
    Argument(16, 2, "hidden_group_size_x"),
    Argument(24, 8, "hidden_queue_ptr"),
]


@pytest.mark.drawn(2)
@pytest.mark.parametrize("queues", ["4", "1", "0"])
def test_pending_launches_keep_their_values(
    environment: Mapping[str, str], image: str, seed: int, queues: str
) -> None:
    check_child(
        *(programs.pending_launches_keep_their_values, image, seed, rounds(20, 1000)),
        environment={**environment, "UHAL_ROCM_QUEUES": queues},
        timeout=1000,
    )


def test_a_graph_larger_than_a_queue(environment: Mapping[str, str], image: str, seed: int) -> None:
    check_child(
        *(programs.more_than_a_queue, image, seed, 20_000, rounds(1, 5)),
        environment=environment,
        timeout=1000,
    )


@pytest.mark.drawn(2)
@pytest.mark.parametrize("queues", ["4", "1"])
def test_two_threads_launch_and_change_two_graphs(
    environment: Mapping[str, str], image: str, seed: int, queues: str
) -> None:
    check_child(
        *(programs.two_threads_two_graphs, image, seed, rounds(100, 10_000)),
        environment={**environment, "UHAL_ROCM_QUEUES": queues},
        timeout=1000,
    )


def test_a_graph_is_destroyed_while_its_launches_are_pending(
    environment: Mapping[str, str], image: str, seed: int
) -> None:
    check_child(programs.destroyed_while_pending, image, seed, environment=environment)


def test_a_capture_takes_32_streams(environment: Mapping[str, str], image: str) -> None:
    check_child(
        programs.as_many_streams_as_a_capture_takes, image, 32, environment=environment, timeout=60
    )


def test_kernels_are_told_the_queue_of_each_launch(
    environment: Mapping[str, str], folder: Path
) -> None:
    path = folder / "told.hsaco"
    path.write_bytes(write([STEP, Kernel("where", HIDDEN, 32)]))
    check_child(programs.told_which_queue, str(path), environment=environment)


@pytest.mark.drawn(1 / 3)
@pytest.mark.parametrize("packet", [1, 2, 3, 4, 9])
def test_a_fault_is_one_of_the_graph_under_way(
    environment: Mapping[str, str], image: str, seed: int, packet: int
) -> None:
    check_child(
        *(programs.lose_in_a_graph, image, seed, packet), environment=environment, timeout=60
    )


def test_every_step_may_fail(environment: Mapping[str, str], image: str, seed: int) -> None:
    check_child(programs.survive_failures, image, seed, rounds(4, 10), environment=environment)

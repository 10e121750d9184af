"""A rank of a job: `ub.all_reduce` and `ub.all_gather`, eager, in graphs and in plans.

mpirun -n RANKS python -m tests.collectives.operations SEED
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

import numpy as np

import ubridge as ub
import uhal
from ubridge.definitions.collectives import ALL_GATHER, ALL_REDUCE
from uhal import Stream
from uhal.collectives import Communicator, Place, share, unique_id
from uhal.errors import ArgumentTypeError, ArgumentValueError, NotSupportedError

SHAPES = ((3, 5), (0, 4), (257,), ())
ROUNDING = {"f16": 2.0**-10, "bf16": 2.0**-7, "f32": 2.0**-22, "f64": 2.0**-51}
"""Twice the unit roundoff. Ranks may be combined in any order, and each combination rounds."""
Arrays = list[np.ndarray]


class Ranks:
    """All ranks' operands, which each rank draws, and the tensors of this rank."""

    def __init__(self, seed: int) -> None:
        place = Place.of()
        uhal.Api.quick_init(0, "host")
        self.group = Communicator(place.ranks, share(unique_id()), place.rank)
        self.rng = np.random.default_rng(seed)

    def drawn(self, dtype: str, shape: tuple[int, ...]) -> Arrays:
        kind = uhal.as_dtype(dtype).dtype
        integers = self.rng.integers(0, 5, (self.group.ranks, *shape))
        floats = self.rng.uniform(-2, 2, (self.group.ranks, *shape))
        return list((floats if dtype in ROUNDING else integers).astype(kind))

    def own(self, ranks: Arrays) -> ub.DeviceTensor:
        return ub.asarray(np.asarray(ranks[self.group.rank]))

    def require_combined(self, found: ub.DeviceTensor, ranks: Arrays, op: str) -> None:
        """Compare with the reference in double precision, or in integers."""
        assert ALL_REDUCE.reference is not None
        dtype = found.dtype.name
        if dtype not in ROUNDING:
            assert (found.to_numpy() == ALL_REDUCE.reference(ranks, op)).all(), (dtype, op)
            return
        wide = [one.astype("f8") for one in ranks]
        exact = ALL_REDUCE.reference(wide, op)
        size = ALL_REDUCE.reference([abs(one) for one in wide], op)
        smallest = 2.0**-24 if dtype == "f16" else 0.0  # a subnormal's rounding
        is_rounded = op in ("sum", "prod")
        bound = len(ranks) * (ROUNDING[dtype] * size + smallest) * is_rounded
        assert (abs(found.to_numpy().astype("f8") - exact) <= bound).all(), (dtype, op)


def every_dtype(ranks: Ranks) -> None:
    assert ALL_GATHER.reference is not None
    for dtype in ALL_REDUCE.dtypes:
        for shape in SHAPES:
            for op in ("sum", "prod", "max", "min"):
                drawn = ranks.drawn(dtype, shape)
                x = ranks.own(drawn)
                assert ub.all_reduce(x, ranks.group, op) is x
                ranks.require_combined(x, drawn, op)
            drawn = ranks.drawn(dtype, shape)
            gathered = ub.all_gather(ranks.own(drawn), ranks.group)
            expected = ALL_GATHER.reference(drawn)
            assert gathered.shape == expected.shape
            assert gathered.to_numpy().tobytes() == expected.tobytes()


def graphs(ranks: Ranks) -> None:
    """Compare a graph's runs and replays with the plain calls, on new operands."""

    def computed(x: ub.DeviceTensor) -> ub.DeviceTensor:
        total = ub.all_reduce(x * 2, ranks.group)
        largest = ub.all_reduce(x + 1, ranks.group, "max")
        return ub.all_gather(ub.relu(total) + largest, ranks.group)

    x = ranks.own(ranks.drawn("f32", (6, 4)))
    with ub.trace() as graph:
        result = computed(x)
    assert str(graph).count("AllReduce(") == 2 and str(graph).count("AllGather(") == 1, str(graph)
    assert result.to_numpy().tobytes() == computed(x).to_numpy().tobytes()
    refused(
        ArgumentValueError,
        "(AllReduce): expected operations that files hold, got all_reduce, which only this process",
        lambda: graph.save("never written"),
    )
    plan = graph.instantiate(Stream())
    collectives = [node.index for node in graph.nodes if str(node).endswith(("Reduce)", "Gather)"))]
    assert [plan.launches[index] for index in collectives] == [0, 0, 0]
    for run in (lambda: ub.execute_graph(graph), plan.replay):
        for _ in range(2):
            x.copy_from(ranks.own(ranks.drawn("f32", (6, 4))))
            result.buffer.set_8(0xFF)
            x.device.synchronize()
            run()
            x.device.synchronize()
            assert result.to_numpy().tobytes() == computed(x).to_numpy().tobytes()
    assert plan.verify()
    plan.close()


def mistakes(ranks: Ranks) -> None:
    x, small = ub.zeros((4, 6), "f32"), ub.zeros(3, "f8e4m3")
    group = ranks.group
    for function in (ub.all_reduce, ub.all_gather):
        name = function.__name__
        cases: tuple[tuple[type[Exception], str, tuple[object, object]], ...] = (
            (ArgumentTypeError, "group: expected a uhal.collectives.Communicator", (x, 3)),
            (ArgumentTypeError, "", (np.zeros(3), group)),
            (ArgumentValueError, "x: expected a contiguous tensor", (x.T, group)),
            (NotSupportedError, "MPI takes", (small, group)),
        )
        for kind, text, given in cases:
            refused(kind, name, partial(function, *given))  # type: ignore[arg-type]
            refused(kind, text, partial(function, *given))  # type: ignore[arg-type]
    refused(
        NotSupportedError, "all_reduce, op: MPI has no avg", lambda: ub.all_reduce(x, group, "avg")
    )
    refused(ArgumentValueError, "all_reduce, op: expected", lambda: ub.all_reduce(x, group, "mean"))


def refused(kind: type[Exception], text: str, call: Callable[[], object]) -> None:
    try:
        call()
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"not refused: {text}")


def main() -> None:
    ranks = Ranks(int(sys.argv[1]))
    every_dtype(ranks)
    graphs(ranks)
    mistakes(ranks)
    ranks.group.barrier()
    ranks.group.wait(60)
    ranks.group.close()
    print("operations are right", flush=True)


if __name__ == "__main__":
    main()

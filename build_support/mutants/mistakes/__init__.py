"""The table of mistakes in compiled sources."""

from build_support.mutants.mistakes import backends, kernels, lane, simulators

MISTAKES = (*lane.MISTAKES, *backends.MISTAKES, *simulators.MISTAKES, *kernels.MISTAKES)

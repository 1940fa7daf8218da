"""Twelve to fourteen drawn knobs, another problem for each seed; see `tables.py`.

Gates, scales with their best value inside, weak pair interactions, and settings that crash, hang or run out of memory,
alone or in pairs.
"""

from benchmarks.problems.tables import Shape, TableProblem


def draw(seed: int) -> TableProblem:
    """The family's problem of one seed."""
    shape = Shape(knobs=12 + seed % 3, effect=0.04, pair_share=0.12, pair_effect=0.02, noise=0.008)
    return TableProblem(seed=1000 + seed, shape=shape)

"""Ten knobs with strong pair and three-way interactions: where a nearly additive model loses; see `tables.py`."""

from benchmarks.problems.tables import Shape, TableProblem

PROBLEM = TableProblem(
    seed=3,
    shape=Shape(knobs=10, effect=0.03, pair_share=0.3, pair_effect=0.04, triples=30, triple_effect=0.06, noise=0.01),
)

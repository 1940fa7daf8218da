"""Eleven drawn knobs with the weak pair interactions of ordinary studies; see `tables.py`."""

from benchmarks.problems.tables import Shape, TableProblem

PROBLEM = TableProblem(seed=11, shape=Shape(knobs=11, effect=0.05, pair_share=0.15, pair_effect=0.02, noise=0.01))

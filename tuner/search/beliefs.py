"""Everything that one engine's history lets us believe: objectives, limits, failures, and what launches cost."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tuner.search.acquisition import chance_above, nondominated
from tuner.search.fit import Data, Fit, fit
from tuner.search.gp import GaussianProcess, data_of
from tuner.search.hindsight import failure_model
from tuner.search.history import History, Observation
from tuner.search.kernels import Array, Kernel
from tuner.search.lattice import Lattice, Points

MIN_SUCCESSES = 4
"""With fewer measured launches there is no model."""

_MAX_ROWS = 300
"""A model is fitted to at most so many launches: the best ones and the newest ones; the cost grows with the cube."""

_MAX_FIT_ROWS = 150
"""Hyperparameters are fitted to at most so many of them."""

_REFIT_EVERY = 4
_REFIT_ALWAYS_BELOW = 16

FitsKept = dict[str, tuple[tuple[object, ...], Fit]]
"""Model → what it was fitted to last, and the fit."""

_USUAL_SECONDS = 180.0
_USUAL_FAILURE_SECONDS = 200.0


@dataclass(frozen=True, slots=True)
class Costs:
    """Expected wall-clock seconds of a launch.

    Attributes:
        success: one that is measured (median so far).
        failure: one that fails for a cause not seen yet (mean so far, with one made-up failure as a start).
    """

    success: float
    failure: float

    @classmethod
    def of(cls, history: History) -> Costs:
        """From the durations seen; where none are known, usual ones."""
        worked = [o.seconds for o in history.successes if o.seconds > 0]
        failed = [o.seconds for o in history.failures if o.seconds > 0]
        return cls(
            statistics.median(worked) if worked else _USUAL_SECONDS,
            statistics.fmean([_USUAL_FAILURE_SECONDS, *failed]),
        )


class Beliefs:
    """Models of one engine, fitted to its history.

    Args:
        lattice: of the engine.
        history: at least `MIN_SUCCESSES` successes.
        fits: what earlier calls have fitted, to be used and added to.
        hints: observations of earlier studies, their values relative to the baseline there.
    """

    def __init__(
        self,
        lattice: Lattice,
        history: History,
        hints: Sequence[Observation] = (),
        fits: FitsKept | None = None,
    ) -> None:
        self._fits = {} if fits is None else fits
        self.lattice = lattice
        self.history = history
        self.costs = Costs.of(history)
        self.failures = failure_model(lattice, history, hints, self.costs.failure)
        self._kernel = Kernel(lattice)
        rows = _most_telling(history)
        hints = _from_baseline(hints, history, lattice.baseline)
        self.objectives = tuple(self._model(rows, hints, k) for k in range(history.objectives))
        self.limits = tuple(self._limit_model(rows, k) for k in range(history.limits))
        pending = history.points(history.pending)
        for model in (*self.objectives, *self.limits):
            if model is not None:
                model.expect(pending)

    def _model(self, rows: Sequence[Observation], hints: Sequence[Observation], k: int) -> GaussianProcess:
        usable = [o for o in [*hints, *rows] if np.isfinite(o.values[k])]
        data = data_of(
            self._kernel,
            self.history.points(usable),
            np.array([o.values[k] for o in usable]),
            noise=np.array([o.spread[k] ** 2 for o in usable]),
            hints=np.array([o.trial < 0 for o in usable]),
        )
        return self._fitted(f"objective {k}", usable, data)

    def _limit_model(self, rows: Sequence[Observation], k: int) -> GaussianProcess | None:
        usable = [o for o in rows if np.isfinite(o.limits[k])]
        if len(usable) < MIN_SUCCESSES:
            return None
        values = np.array([o.limits[k] for o in usable])
        return self._fitted(f"limit {k}", usable, data_of(self._kernel, self.history.points(usable), values))

    def _fitted(self, what: str, rows: Sequence[Observation], data: Data) -> GaussianProcess:
        """A model whose hyperparameters are fitted to a round number of its first rows, and kept until the next one.

        So a long study fits every few launches only, and still the history alone decides: a resumed study, which has
        nothing kept, finds the same.
        """
        count = len(rows)
        if count >= _REFIT_ALWAYS_BELOW:
            count -= count % _REFIT_EVERY
        fitted = tuple(map(_identity, rows[:count]))
        if what not in self._fits or self._fits[what][0] != fitted:
            self._fits[what] = fitted, fit(self._kernel, data.first(count).last(_MAX_FIT_ROWS))
        return GaussianProcess(self._kernel, data, self._fits[what][1])

    def predict(self, points: Points) -> tuple[Array, Array]:
        """Mean and standard deviation of the log objectives; shapes (points, objectives)."""
        found = [model.predict(points) for model in self.objectives]
        return np.stack([mean for mean, _ in found], axis=1), np.stack([sd for _, sd in found], axis=1)

    def keeps_limits(self, points: Points) -> Array:
        """Probability that every limit is kept; shape (points,)."""
        chance = np.ones(len(points))
        for model in self.limits:
            if model is not None:
                mean, sd = model.predict(points)
                chance *= chance_above(-mean, sd, 0.0)
        return chance

    @property
    def known_points(self) -> Points:
        """The distinct points measured in full."""
        points: Points = np.unique(self.history.points(self.history.successes), axis=0)
        return points


def _from_baseline(hints: Sequence[Observation], history: History, baseline: Points) -> list[Observation]:
    """Hints on the scale of this study: relative to its own baseline; none as long as that was not measured."""
    own = [o.values for o in history.successes if (o.point == baseline).all()]
    if not own:
        return []
    level = np.mean(own, axis=0)
    return [replace(hint, values=hint.values + level) for hint in hints]


def _identity(row: Observation) -> tuple[object, ...]:
    """What tells a row from another: its trial, and as what that is seen (see `Search.restate`)."""
    if row.trial < 0:
        return (row.trial,)
    return row.trial, row.values.tobytes(), row.limits.tobytes(), row.spread.tobytes()


def _most_telling(history: History) -> list[Observation]:
    """The launches to fit: all while they are few, else the front, the best of each objective and the newest."""
    rows = list(history.launched)
    if len(rows) <= _MAX_ROWS:
        return rows
    worked = list(history.successes)
    values = np.array([o.values for o in worked])
    rank = values.argsort(axis=0).argsort(axis=0).max(axis=1)
    best: NDArray[np.int64] = np.argsort(-(rank + len(rows) * nondominated(values)), kind="stable")
    kept = {worked[int(i)].trial for i in best[: _MAX_ROWS // 2]}
    kept |= {o.trial for o in rows[:1]}  # the baseline, from which everything is reckoned
    for newest in reversed(rows):
        if len(kept) >= _MAX_ROWS:
            break
        kept.add(newest.trial)
    return [o for o in rows if o.trial in kept]

"""Which candidate of one engine to launch next: the start, then the best of a pool under the models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from tuner.search.acquisition import (
    chance_above,
    expected_excess,
    expected_hypervolume_improvement,
    nondominated,
)
from tuner.search.base import SpaceExhausted
from tuner.search.beliefs import MIN_SUCCESSES, Beliefs, Costs, FitsKept
from tuner.search.failure_model import FailureModel
from tuner.search.history import Ending, History, Observation
from tuner.search.kernels import Array
from tuner.search.lattice import Lattice, Points
from tuner.search.pool import any_unseen, candidate_pool, neighbours
from tuner.search.start import next_start


@dataclass(frozen=True, slots=True)
class Aims:
    """What the search is after.

    Attributes:
        keep: share of the baseline's value that the other objectives must keep for the lead objective (the first) to
        count. reference: share of the baseline's values from which the front's volume is reckoned. front_share: share
        of the launches that go for the front as a whole; the others go for the lead objective. together: changes of
        the baseline in one launch of the start. barred: a candidate that fails with more than this probability is
        taken only when nothing else is left. pool: candidates scored at each ask.
    """

    keep: float = 0.97
    reference: float = 0.9
    front_share: float = 0.5
    margin: float = 2.0
    together: int = 2
    moving: bool = True
    barred: float = 0.5
    pool: int = 1200


_LAST = 1e6
"""Taken off a barred candidate's worth: any other candidate comes before it."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A point to launch, and why."""

    point: Points
    why: str
    beliefs: Beliefs | None = None


class Proposer:
    """Chooses the points of one engine; without memory of its own, so the same history gives the same choice.

    Args:
        lattice: of the engine.
        seed: of every random choice.
        aims: what is sought.
        hints: observations of earlier studies.
    """

    def __init__(
        self, lattice: Lattice, *, seed: int, aims: Aims | None = None, hints: Sequence[Observation] = ()
    ) -> None:
        self._lattice = lattice
        self._seed = seed
        self._aims = aims or Aims()
        self._hints = tuple(hints)
        self._fits: FitsKept = {}

    def propose(self, history: History) -> Choice:
        """The next point.

        Raises:
            SpaceExhausted: when every allowed point was proposed.
        """
        again = self._baseline_again(history)
        if again is not None:
            return again
        start = self._start(history)
        if start is not None:
            return start
        rng = np.random.default_rng([self._seed, len(history.all)])
        if len(history.successes) < MIN_SUCCESSES:
            return self._at_random(history, rng, "at random: too few launches have worked for a model")
        beliefs = Beliefs(self._lattice, history, self._hints, self._fits)
        return self._by_model(beliefs, rng)

    def _baseline_again(self, history: History) -> Choice | None:
        """The baseline once more when its only launch failed: a chance failure there would frame every default."""
        baseline = self._lattice.baseline
        launches = [o for o in history.all if (o.point == baseline).all() and o.trial >= 0]
        if len(launches) != 1 or launches[0].ending is not Ending.FAILED:
            return None
        return Choice(baseline, "the baseline again: its first launch failed, which may have been chance")

    def _start(self, history: History) -> Choice | None:
        failures = FailureModel(self._lattice, history, Costs.of(history).failure)
        order = np.random.default_rng([self._seed, 0])
        base = self._incumbent(history) if self._aims.moving else self._lattice.baseline
        point = next_start(self._lattice, history, failures, order, base=base, together=self._aims.together)
        if point is None:
            return None
        return Choice(point, "the start: a first look at values that no launch has shown yet")

    def _incumbent(self, history: History) -> Points:
        """The launched point with the best first objective of those that seem to keep the others; else the baseline."""
        baseline = self._lattice.baseline
        own = [o.values for o in history.successes if (o.point == baseline).all()]
        if not own:
            return baseline
        floor = np.mean(own, axis=0) + np.log(self._aims.keep)
        kept = [o for o in history.successes if (o.values[1:] >= floor[1:]).all() and not (o.limits > 0).any()]
        return max(kept, key=lambda o: float(o.values[0]), default=history.successes[0]).point

    def _at_random(self, history: History, rng: Generator, why: str) -> Choice:
        point = any_unseen(self._lattice, history.seen(), rng)
        if point is None:
            raise SpaceExhausted
        return Choice(point, why)

    def _by_model(self, beliefs: Beliefs, rng: Generator) -> Choice:
        history, seen = beliefs.history, beliefs.history.seen()
        goal = _Goal(
            beliefs, self._aims,
            whole_front=rng.random() < self._aims.front_share,
            margin=self._aims.margin * rng.random(),
        )  # fmt: skip
        pool = candidate_pool(self._lattice, goal.parents, self._aims.pool, seen, rng)
        if not len(pool):
            return self._at_random(history, rng, "at random: everything near the best is known")
        score = goal.score(pool)
        best, top = pool[score.argmax()], float(score.max())
        while True:
            around = neighbours(self._lattice, pool[np.argsort(-score, kind="stable")[:4]], seen)
            if not len(around):
                break
            pool, score = around, goal.score(around)
            if score.max() <= top:
                break
            best, top = pool[score.argmax()], float(score.max())
        return Choice(best, goal.words, beliefs)


def floors(beliefs: Beliefs, aims: Aims, margin: float = 0.0) -> Array:
    """Log value that each objective must keep: the baseline's share, and `margin` launch noises for safety."""
    at_baseline, _ = beliefs.predict(beliefs.lattice.baseline[None])
    noise = np.array([model.launch_noise for model in beliefs.objectives])
    kept: Array = at_baseline[0] + np.log(aims.keep) + margin * noise
    return kept


class _Goal:
    """One ask's acquisition: expected gain times the chance to work, per expected second."""

    def __init__(self, beliefs: Beliefs, aims: Aims, *, whole_front: bool, margin: float) -> None:
        self._beliefs = beliefs
        self._aims = aims
        self._known = beliefs.known_points
        self._mean, _ = beliefs.predict(self._known)
        kept = beliefs.keeps_limits(self._known) >= 0.5
        at_baseline, _ = beliefs.predict(beliefs.lattice.baseline[None])
        self._floors = floors(beliefs, aims, margin)
        self._reference = at_baseline[0] + np.log(aims.reference)
        objectives = self._mean.shape[1]
        self._whole_front = whole_front and objectives > 1
        fit = kept & (self._mean[:, 1:] >= self._floors[1:]).all(axis=1)
        self._best = float(self._mean[fit, 0].max()) if fit.any() else float(self._mean[:, 0].min())
        self._front = self._mean[kept] if kept.any() else self._mean[:0]
        lead = self._mean[:, 0] - 3.0 * np.maximum(self._floors[1:] - self._mean[:, 1:], 0.0).sum(axis=1)
        by_lead = np.argsort(-np.where(kept, lead, lead - 10.0), kind="stable")[:5]
        by_front = np.flatnonzero(nondominated(self._mean))
        by_front = by_front[np.argsort(-self._mean[by_front, 0], kind="stable")][:8]
        self.parents = self._known[list(dict.fromkeys([*by_front.tolist(), *by_lead.tolist()]))]

    @property
    def words(self) -> str:
        """Why the best-scored point is launched."""
        if self._whole_front:
            return "the most expected growth of the front per expected second"
        return "the most expected gain of the first objective, the others kept, per expected second"

    def score(self, points: Points) -> Array:
        """Larger is better; shape (points,)."""
        mean, sd = self._beliefs.predict(points)
        if self._whole_front:
            gain = expected_hypervolume_improvement(mean, sd, self._front, self._reference) + 1e-12
        else:
            gain = expected_excess(mean[:, 0], sd[:, 0], self._best)
            for k in range(1, mean.shape[1]):
                gain = gain * chance_above(mean[:, k], sd[:, k], float(self._floors[k]))
            gain = gain + 1e-15
        gain = gain * self._beliefs.keeps_limits(points)
        risk = self._beliefs.failures.assess(points)
        # A launch that fails fast saves time, but it uses up a trial of the budget all the same.
        success = self._beliefs.costs.success
        seconds = success * (1 - risk.chance) + np.maximum(risk.seconds, success) * risk.chance
        worth: Array = gain * (1 - risk.chance) / seconds
        barred = (risk.chance > self._aims.barred) & (risk.witnesses > 1)
        return np.where(barred, worth - _LAST, worth)

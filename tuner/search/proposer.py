"""Which candidate of one engine to launch next: the start, then the best of a pool under the models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from tuner.search.base import SpaceExhausted
from tuner.search.beliefs import MIN_SUCCESSES, Beliefs, Costs, FitsKept
from tuner.search.goal import KEPT, Goal
from tuner.search.hindsight import failure_model
from tuner.search.history import Ending, History, Observation, unseen
from tuner.search.lattice import Lattice, Points
from tuner.search.pool import any_unseen, candidate_pool, neighbours
from tuner.search.start import next_start

_POOL = 1200
"""Candidates scored at each ask."""

_FRONT_SHARE = (0.2, 0.4)
"""Bounds on the share of launches that go for the front as a whole; the others go for the lead objective. Between them,
whichever promises more gets more."""

_CLIMBED = 4
_IDLE = 0.05
"""A change is idle when without it the point is worth at least all but this share."""

_ADOPTED = 0.01
"""A change that wins less than one launch's noise is not built upon in the start."""

_SURE_ENOUGH = 0.06
"""A hint with more doubt than this does not spare a value its first look."""

_FRONT_WORDS = "the most expected growth of the front per expected second"
_LEAD_WORDS = "the most expected gain of the first objective, the others kept, per expected second"


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
        hints: observations of earlier studies.
    """

    def __init__(self, lattice: Lattice, *, seed: int, hints: Sequence[Observation] = ()) -> None:
        self._lattice = lattice
        self._seed = seed
        self._hints = tuple(hints)
        self._shown_before = frozenset(
            (i, int(index))
            for hint in self._hints
            if hint.ending is Ending.SCORED and hint.spread.max() <= _SURE_ENOUGH
            for i, index in enumerate(hint.point)
        )
        self._fits: FitsKept = {}

    def propose(self, history: History) -> Choice:
        """The next point.

        Raises:
            SpaceExhausted: when every allowed point was proposed.
        """
        again = self._baseline_again(history)
        if again is not None:
            return again
        known = self._best_before(history) or self._expected(history)
        if known is not None:
            return known
        start = self._start(history)
        if start is not None:
            return start
        rng = np.random.default_rng([self._seed, len(history.all)])
        if self._known_results(history) < MIN_SUCCESSES:
            return self._at_random(history, rng, "at random: too few launches have worked for a model")
        beliefs = Beliefs(self._lattice, history, self._hints, self._fits)
        return self._by_model(beliefs, rng)

    def _known_results(self, history: History) -> int:
        """Results that a model can be made of; hints say nothing until the baseline was measured here, too."""
        own = history.successes
        if not any((o.point == self._lattice.baseline).all() for o in own):
            return len(own)
        return len(own) + sum(hint.ending is Ending.SCORED for hint in self._hints)

    def _baseline_again(self, history: History) -> Choice | None:
        """The baseline once more when its only launch failed: a chance failure there would frame every default."""
        baseline = self._lattice.baseline
        launches = [o for o in history.all if (o.point == baseline).all() and o.trial >= 0]
        if len(launches) != 1 or launches[0].ending is not Ending.FAILED:
            return None
        return Choice(baseline, "the baseline again: its first launch failed, which may have been chance")

    def _best_before(self, history: History) -> Choice | None:
        """What did best in earlier studies, once the baseline works here: nothing promises more, and what follows
        starts from there."""
        if not any((o.point == self._lattice.baseline).all() for o in history.successes):
            return None
        floor = np.log(KEPT)
        known = [h.point.tobytes() for h in self._hints if h.ending is Ending.FAILED]
        kept = [
            h
            for h in self._hints
            if h.ending is Ending.SCORED and h.values[0] > 0 and not (h.values[1:] < floor).any()
            if h.point.tobytes() not in known and self._lattice.allowed(h.point[None])[0]
        ]
        best = max(kept, key=lambda hint: float(hint.values[0]), default=None)
        if best is None or best.point.tobytes() in history.seen():
            return None
        return Choice(best.point, "the best of an earlier study")

    def _expected(self, history: History) -> Choice | None:
        """Every knob at the first value that the space file expects to be good, as far as its rules allow it."""
        lattice = self._lattice
        if not any((o.point == lattice.baseline).all() for o in history.successes):
            return None
        point = lattice.baseline
        for column, axis in enumerate(lattice.axes):
            if axis.likely and point[column] != axis.likely[0]:
                moved = point.copy()
                moved[column] = axis.likely[0]
                moved = lattice.canonical(moved[None])[0]
                point = moved if lattice.allowed(moved[None])[0] else point
        if point.tobytes() in history.seen():
            return None
        return Choice(point, "what the space file expects to be good, together")

    def _start(self, history: History) -> Choice | None:
        costs = Costs.of(history)
        failures = failure_model(self._lattice, history, self._hints, costs.failure)
        order = np.random.default_rng([self._seed, 0])
        base = self._incumbent(history)
        point = next_start(
            self._lattice,
            history,
            failures,
            order,
            base=base,
            patience=costs.success,
            shown_before=self._shown_before,
        )
        if point is None:
            return None
        return Choice(point, "the start: a first look at values that no launch has shown yet")

    def _incumbent(self, history: History) -> Points:
        """The launched point with the best first objective of those that seem to keep the others; else the baseline."""
        baseline = self._lattice.baseline
        own = [o.values for o in history.successes if (o.point == baseline).all()]
        if not own:
            return baseline
        floor = np.mean(own, axis=0) + np.log(KEPT)
        kept = [o for o in history.successes if (o.values[1:] >= floor[1:]).all() and not (o.limits > 0).any()]

        def worth(launch: Observation) -> float:
            return float(launch.values[0]) - _ADOPTED * int((launch.point != baseline).sum())

        return max(kept, key=worth, default=history.successes[0]).point

    def _at_random(self, history: History, rng: Generator, why: str) -> Choice:
        point = any_unseen(self._lattice, history.seen(), rng)
        if point is None:
            raise SpaceExhausted
        return Choice(point, why)

    def _by_model(self, beliefs: Beliefs, rng: Generator) -> Choice:
        history, seen = beliefs.history, beliefs.history.seen()
        goal = Goal(beliefs)
        pool = candidate_pool(self._lattice, goal.parents, _POOL, seen, rng)
        if not len(pool):
            return self._at_random(history, rng, "at random: everything near the best is known")
        lead, front = goal.gains(pool)
        most_lead, most_front = float(lead.max()), float(front.max())
        low, high = _FRONT_SHARE
        share = np.clip(most_front / (most_lead + most_front), low, high) if most_lead + most_front > 0 else low
        whole_front = bool(rng.random() < share) and history.objectives > 1
        score = goal.worth(pool, front if whole_front else lead)
        best, top = pool[score.argmax()], float(score.max())
        while True:
            around = neighbours(self._lattice, pool[np.argsort(-score, kind="stable")[:_CLIMBED]], seen)
            if not len(around):
                break
            pool = around
            score = goal.worth(pool, goal.gains(pool)[whole_front])
            if score.max() <= top:
                break
            best, top = pool[score.argmax()], float(score.max())
        best = self._without_idle_changes(best, goal, beliefs, whole_front)
        return Choice(best, _FRONT_WORDS if whole_front else _LEAD_WORDS, beliefs)

    def _without_idle_changes(self, point: Points, goal: Goal, beliefs: Beliefs, whole_front: bool) -> Points:
        """The point with those changes undone that promise next to nothing.

        Undone means: as in the launched point that is most like it. What a change may do beyond the model's belief, a
        cliff or a failure, is not in the model's uncertainty, so a change must promise something to be made.
        """
        known, seen = beliefs.known_points, beliefs.history.seen()
        anchor = known[(known != point).sum(axis=1).argmin()]
        least = (1 - _IDLE) * float(goal.worth(point[None], goal.gains(point[None])[whole_front])[0])
        while least > 0:
            undone = np.repeat(point[None], self._lattice.dimensions, axis=0)
            np.fill_diagonal(undone, anchor)
            undone = self._lattice.canonical(undone)
            nearer = (undone != anchor).sum(axis=1) < (point != anchor).sum()
            undone = unseen(undone[nearer & self._lattice.allowed(undone)], seen)
            if not len(undone):
                break
            worth = goal.worth(undone, goal.gains(undone)[whole_front])
            if worth.max() < least:
                break
            point = undone[worth.argmax()]
        return point

"""Series of interleaved launches: what to launch next in a round, and what the rounds show.

Nothing is kept beside the attempts: their purpose, candidate and block say everything, so that a series goes on after
any interruption, and every result can be reckoned again.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Mapping, Sequence

from tuner.domain.candidate import Candidate
from tuner.domain.front import Estimate
from tuner.domain.measurement import MetricAt, SpreadKind
from tuner.domain.proof import Effect, Finding
from tuner.domain.space import Objective, Space
from tuner.domain.study import AttemptRecord, AttemptState
from tuner.domain.trial import LaunchKind, Purpose
from tuner.search.base import Proposal, Search
from tuner.study.agenda import Done
from tuner.study.inference import Contrast, Launch, Rounds, holm
from tuner.trial.baseline_levels import wanted_metrics
from tuner.trial.statistics import CONFIDENCE

SIGNIFICANCE = 1 - CONFIDENCE

ArmsFor = Callable[[Sequence[AttemptRecord]], Sequence[Candidate] | Done]
"""Which configurations the next round holds, from the attempts of the rounds before it."""


def in_block(attempt: AttemptRecord) -> int:
    """The block of an attempt of a series."""
    assert attempt.block is not None, "launches of a series are made in blocks"
    return attempt.block


def ended(series: Sequence[AttemptRecord]) -> list[AttemptRecord]:
    """The launches with an outcome; one that was interrupted is made again."""
    return [a for a in series if a.state.finished]


def missing_of_last_round(series: Sequence[AttemptRecord], arms_for: ArmsFor) -> list[Candidate]:
    """The configurations of the round that was begun last which it does not hold yet."""
    if not series:
        return []
    block = max(map(in_block, series))
    begun = {a.candidate.fingerprint for a in series if a.block == block}
    arms = arms_for([a for a in series if in_block(a) < block])
    return [] if isinstance(arms, Done) else [c for c in arms if c.fingerprint not in begun]


class Rotation:
    """Hands out the launches of a series, round after round, each round in a random order of its own.

    Args:
        search: proposes what it is told to, so that it learns from every launch.
        purpose: of the launches.
        seed: of the order; the same seed and rounds give the same order, whatever interrupted it.
    """

    def __init__(self, search: Search, purpose: Purpose, seed: int) -> None:
        self._search = search
        self._purpose = purpose
        self._seed = seed

    def next(
        self,
        attempts: Sequence[AttemptRecord],
        series: Sequence[AttemptRecord],
        in_hand: Sequence[Proposal],
        arms_for: ArmsFor,
        no_more: str | None = None,
    ) -> Proposal | Done | None:
        """The next launch; None until the launches of this round have ended.

        Args:
            attempts: all of the study.
            series: those of this series.
            in_hand: what runs or waits.
            arms_for: decides each round's configurations.
            no_more: why no further round may begin; one that was begun is finished all the same.
        """
        if missing := missing_of_last_round(series, arms_for):
            block = max(map(in_block, series))
            return self._propose(self._first(missing, block), block)
        if in_hand:
            return None
        if no_more is not None:
            return Done(no_more)
        arms = arms_for(series)
        if isinstance(arms, Done):
            return arms
        block = 1 + max((a.block for a in attempts if a.block is not None), default=0)
        return self._propose(self._first(arms, block), block)

    def _first(self, arms: Sequence[Candidate], block: int) -> Candidate:
        """The first of some in the random order of the round, which does not depend on how many are left of it."""

        def place(candidate: Candidate) -> float:
            return random.Random(f"{self._seed} {block} {candidate.fingerprint}").random()  # noqa: S311 - no secret

        return min(arms, key=place)

    def _propose(self, candidate: Candidate, block: int) -> Proposal:
        proposal = self._search.propose(candidate, self._purpose)
        return Proposal(proposal.trial, candidate, f"{proposal.why}, round {block}", self._purpose, block)


def failed_for_good(series: Sequence[AttemptRecord]) -> Mapping[str, int]:
    """Fingerprint → trials whose last attempt failed."""
    last = {attempt.trial: attempt for attempt in series}
    counts: dict[str, int] = {}
    for attempt in last.values():
        if attempt.state is AttemptState.FAILED:
            key = attempt.candidate.fingerprint
            counts[key] = counts.get(key, 0) + 1
    return counts


def rounds_begun(series: Sequence[AttemptRecord], candidate: Candidate) -> int:
    """In how many rounds a configuration was launched, whatever came of it."""
    return len({a.block for a in series if a.candidate.fingerprint == candidate.fingerprint})


def _replicates(series: Sequence[AttemptRecord], attempts: Sequence[AttemptRecord]) -> list[list[AttemptRecord]]:
    """The launches with which each baseline of the series began the study, as far as they were launched as it is.

    Only those at the start, one after the other: later ones are spread over hours, and would tell the drift as well.
    """
    arms = {attempt.candidate.fingerprint for attempt in series}
    groups: dict[str, list[AttemptRecord]] = {}
    for attempt in attempts:
        as_here = attempt.purpose is Purpose.BASELINE and attempt.was_launched(LaunchKind.PLAIN)
        if as_here and attempt.candidate.fingerprint in arms:
            groups.setdefault(attempt.candidate.fingerprint, []).append(attempt)
    return list(groups.values())


class SeriesResults:
    """What the launches of a series show, objective by objective.

    Args:
        space: of the study.
        series: its attempts; those without a number are left out.
        asked: the difference that matters, as a share.
        attempts: all of the study. The baseline's launches before the series tell the noise too: nobody chose them for
            what they showed.
    """

    def __init__(
        self, space: Space, series: Sequence[AttemptRecord], asked: float, attempts: Sequence[AttemptRecord] = ()
    ) -> None:
        self._space = space
        self._series = series
        self._asked = asked
        self._replicates = _replicates(series, attempts)
        self._rounds = {goal.label: self._fit(goal) for goal in space.goals}

    def _fit(self, goal: Objective) -> Rounds:
        rows = []
        for attempt in self._series:
            value = attempt.value(goal.at)
            if value is not None and value > 0:
                rows.append(Launch(attempt.candidate.fingerprint, in_block(attempt), value))
        groups = [[attempt.value(goal.at) for attempt in group] for group in self._replicates]
        return Rounds(rows, [[value for value in group if value is not None and value > 0] for group in groups])

    def contrast(self, goal: Objective, a: Candidate, b: Candidate) -> Contrast | None:
        """`a` against `b` in logarithms, turned so that more is better."""
        found = self._rounds[goal.label].contrast(a.fingerprint, b.fingerprint)
        if found is None or goal.maximize:
            return found
        return Contrast(-found.estimate, found.error, found.df)

    def effects(self, a: Candidate, b: Candidate, p_values: Mapping[str, float] | None = None) -> tuple[Effect, ...]:
        """`a` against `b`, one effect per objective.

        Args:
            a: the configuration that is judged.
            b: what it is compared with.
            p_values: objective → p-value adjusted for all comparisons that are made; None takes each as the only one.
        """
        return tuple(self._effect(goal, a, b, p_values) for goal in self._space.goals)

    def effects_together(self, a: Candidate, b: Candidate) -> tuple[Effect, ...]:
        """As `effects`, in words that hold for all objectives at once (Holm)."""
        raw = {goal.label: c.p_value for goal in self._space.goals if (c := self.contrast(goal, a, b)) is not None}
        return self.effects(a, b, holm(raw))

    def _effect(self, goal: Objective, a: Candidate, b: Candidate, p_values: Mapping[str, float] | None) -> Effect:
        rounds = self._rounds[goal.label]
        raw, turned = rounds.contrast(a.fingerprint, b.fingerprint), self.contrast(goal, a, b)
        if raw is None or turned is None:
            return Effect(goal.label, None)
        interval = raw.interval()
        p = turned.p_value if p_values is None else p_values[goal.label]
        return Effect(
            objective=goal.label,
            change=math.expm1(raw.estimate),
            low=None if interval is None else interval.low,
            high=None if interval is None else interval.high,
            rounds=rounds.together(a.fingerprint, b.fingerprint),
            better=turned.chance_above,
            smallest=raw.smallest,
            finding=self._finding(turned, p),
        )

    def _finding(self, turned: Contrast, p: float) -> Finding:
        if p < SIGNIFICANCE:
            return Finding.FASTER if turned.estimate > 0 else Finding.SLOWER
        told = turned.smallest is not None and turned.smallest <= self._asked
        return Finding.NO_DIFFERENCE if told else Finding.NOISE

    def is_decided(self, a: Candidate, b: Candidate) -> bool:
        """Whether more rounds would change nothing: a 99 % interval without zero, or a 95 % one within what matters."""
        return all(
            (contrast := self.contrast(goal, a, b)) is not None and self._is_clear(contrast)
            for goal in self._space.goals
        )

    def _is_clear(self, contrast: Contrast) -> bool:
        wide, usual = contrast.interval(0.99), contrast.interval()
        if wide is None or usual is None:
            return False
        return not wide.contains(0.0) or (usual.low > -self._asked and usual.high < self._asked)

    def values(self, candidate: Candidate) -> tuple[Estimate | None, ...]:
        """Per objective the geometric mean over launches, with an interval from how launches of all arms scatter.

        Effects are differences of logarithms: where no launch is missing, they are the ratios of these means.
        """
        return tuple(self._estimate(goal, candidate) for goal in self._space.goals)

    def _estimate(self, goal: Objective, candidate: Candidate) -> Estimate | None:
        rounds = self._rounds[goal.label]
        own = [launch.value for launch in rounds.launches if launch.arm == candidate.fingerprint]
        if not own:
            return None
        center = statistics.geometric_mean(own)
        half = rounds.level_error(len(own))
        if half is None:
            return Estimate(center, launches=len(own))
        low, high = center * math.exp(-half), center * math.exp(half)
        return Estimate(center, low, high, len(own), SpreadKind.BETWEEN_LAUNCHES)

    def broken(self, candidate: Candidate, reference: Candidate) -> dict[str, float]:
        """Limits that the launches break in the mean → by how much, as a share of the bound."""
        base, own = self._centers(reference), self._centers(candidate)
        broken: dict[str, float] = {}
        for limit in self._space.limits:
            at = limit.at
            excess = limit.violation(own[at], base.get(at)) if at in own else 1.0
            if excess > 0:
                broken[limit.label] = max(excess, broken.get(limit.label, 0.0))
        return broken

    def _centers(self, candidate: Candidate) -> dict[MetricAt, float]:
        """The means that are told (`values`); of a metric that may be nothing, like a share of errors, the median."""
        found = {}
        for at in wanted_metrics(self._space):
            own = [a for a in self._series if a.candidate.fingerprint == candidate.fingerprint]
            values = [value for a in own if (value := a.value(at)) is not None]
            if values:
                found[at] = statistics.geometric_mean(values) if min(values) > 0 else statistics.median(values)
        return found

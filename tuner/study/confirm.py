"""Confirming: the baseline and the finalists are launched again, interleaved, and compared round by round."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tuner.domain.candidate import Candidate
from tuner.domain.proof import ArmResult, Confirmation, EngineComparison, Finding
from tuner.domain.space import Space
from tuner.domain.study import AttemptRecord, StudyRecord
from tuner.domain.trial import Purpose
from tuner.search.base import Proposal, Search
from tuner.study.agenda import Done
from tuner.study.extent import Extent
from tuner.study.inference import holm
from tuner.study.planned import Planned, PlannedStage, Planner
from tuner.study.series import (
    Rotation,
    SeriesResults,
    ended,
    failed_for_good,
    missing_of_last_round,
    rounds_begun,
)
from tuner.study.stopping import Spent, spent_reason
from tuner.study.summary import trial_of
from tuner.trial.baseline_levels import BaselineLevels

_LOOK_AFTER = 3
"""Rounds before the first look whether more are needed: two have too few degrees of freedom to be trusted."""

_SEARCHES = frozenset({Purpose.SEARCH, Purpose.SECOND_CHANCE})


def series_of(attempts: Sequence[AttemptRecord]) -> list[AttemptRecord]:
    """The launches of the last confirmation: those that no search launch separates."""
    series: list[AttemptRecord] = []
    searched = False
    for attempt in attempts:
        if attempt.purpose in _SEARCHES:
            searched = True
        elif attempt.purpose is Purpose.CONFIRM and attempt.block is not None:
            if searched:
                series = []
            searched = False
            series.append(attempt)
    return series


def _is_over(attempts: Sequence[AttemptRecord]) -> bool:
    """Whether the search went on after the last confirmation, so that another one begins."""
    last = next((a for a in reversed(attempts) if a.purpose in _SEARCHES or a.purpose is Purpose.CONFIRM), None)
    return last is None or last.purpose is not Purpose.CONFIRM


def finalists_begun(attempts: Sequence[AttemptRecord], baselines: Mapping[str, Candidate]) -> int | None:
    """How many finalists the confirmation has that would go on; None where a new one would begin."""
    if _is_over(attempts):
        return None
    known = {baseline.fingerprint for baseline in baselines.values()}
    return len({a.candidate.fingerprint for a in series_of(attempts)} - known) or None


class ConfirmAgenda:
    """Launches of a confirmation; it begins, goes on, or finds that everything was launched.

    Args:
        record: the study.
        search: names the finalists, and learns from their launches.
        baselines: engine → baseline.
        extent: how much to launch, decided when it begins; None when it cannot be afforded.
        spent: what the study has used; None when the user asked for this confirmation, whatever it costs.
    """

    def __init__(
        self,
        record: StudyRecord,
        *,
        search: Search,
        baselines: Mapping[str, Candidate],
        extent: Callable[[list[AttemptRecord]], Extent | None],
        spent: Callable[[list[AttemptRecord]], Spent] | None = None,
    ) -> None:
        self._space = record.space
        self._search = search
        self._baselines = baselines
        self._extent_of = extent
        self._extent: Extent | None = None
        self._spent = spent
        self._rotation = Rotation(search, Purpose.CONFIRM, record.seed)

    def next(self, attempts: list[AttemptRecord], in_hand: tuple[Proposal, ...]) -> Proposal | Done | None:
        """See `tuner.study.agenda.Agenda.next`."""
        series = [] if _is_over(attempts) else series_of(attempts)
        if not series and in_hand:
            return None
        self._extent = self._extent or self._extent_of(attempts)
        if self._extent is None:
            return Done("not confirmed: the budget leaves too little for two rounds")
        finalists = self._finalists(series, attempts, self._extent)
        if not finalists:
            return Done("not confirmed: no candidate is expected to be better than the baseline")
        rounds = self._extent.rounds

        def arms_for(earlier: Sequence[AttemptRecord]) -> Sequence[Candidate] | Done:
            return self._arms(earlier, finalists, rounds, attempts)

        return self._rotation.next(attempts, series, in_hand, arms_for, self._out_of_time(attempts))

    def planned(self, attempts: list[AttemptRecord]) -> Planned:
        """What would be launched if nothing decided earlier; a confirmation that was begun goes on."""
        whole = [] if _is_over(attempts) else series_of(attempts)
        extent = self._extent_of(attempts)
        finalists = [] if extent is None else self._finalists(whole, attempts, extent)
        if extent is None or not finalists:
            return Planned((), "no candidate is expected to be better than the baseline")
        series, rounds, failed = ended(whole), extent.rounds, failed_for_good(whole)
        standing = [c for c in finalists if c.fingerprint not in failed]
        lacking = missing_of_last_round(series, lambda earlier: self._arms(earlier, finalists, rounds, attempts))
        lacks = {c.fingerprint for c in lacking}
        left = {c.fingerprint: max(0, rounds - rounds_begun(series, c)) for c in standing}
        more = max((n - (key in lacks) for key, n in left.items()), default=0)
        planner = Planner(attempts, self._baselines)
        # The baselines are launched in every round.
        arms = [planner.arm("baseline", b, more + (b.fingerprint in lacks)) for b in self._baselines.values()]
        arms += [planner.arm("finalist", c, left[c.fingerprint]) for c in standing]
        due = tuple(arm for arm in arms if arm.launches)
        why = "" if due else "every finalist had its launches" if standing else "every finalist failed"
        return Planned((PlannedStage("baseline and finalists, interleaved", due),) if due else (), why)

    def _finalists(
        self, series: Sequence[AttemptRecord], attempts: Sequence[AttemptRecord], extent: Extent
    ) -> list[Candidate]:
        """The same ones after an interruption: chosen from what was known when the series began."""
        before = min((a.trial for a in series), default=None)
        each = math.ceil(extent.finalists / len(self._baselines))
        chosen: list[Candidate] = []
        for engine, baseline in self._baselines.items():
            expected = self._search.finalists(engine, each, before)
            chosen += expected or _best_seen(self._space, attempts, baseline, each, before)
        return chosen[: extent.finalists]

    def _arms(
        self,
        earlier: Sequence[AttemptRecord],
        finalists: Sequence[Candidate],
        rounds: int,
        attempts: Sequence[AttemptRecord],
    ) -> Sequence[Candidate] | Done:
        failed = failed_for_good(earlier)
        standing = [c for c in finalists if c.fingerprint not in failed]
        due = [c for c in standing if rounds_begun(earlier, c) < rounds]
        if not due:
            return Done("confirmation complete" if standing else "not confirmed: every finalist failed")
        controls = list(self._baselines.values())
        begun = max(rounds_begun(earlier, c) for c in controls) if earlier else 0
        if begun >= _LOOK_AFTER and begun < rounds:
            results = SeriesResults(self._space, earlier, self._space.budget.smallest_gain, attempts)
            if all(results.is_decided(c, self._baselines[c.engine]) for c in standing):
                return Done(f"confirmation decided after {begun} rounds: more would decide nothing")
        return [*controls, *due]

    def _out_of_time(self, attempts: list[AttemptRecord]) -> str | None:
        """Trials do not count here: the extent keeps within them."""
        if self._spent is None:
            return None
        spent = self._spent(attempts)
        return spent_reason(self._space.budget, replace(spent, trials=0))


def _best_seen(
    space: Space, attempts: Sequence[AttemptRecord], baseline: Candidate, count: int, before: int | None
) -> list[Candidate]:
    """Where no model exists yet: measured candidates by the product of their objectives, best first.

    While the machine drifts, as they would be measured now.
    """
    earlier = [a for a in attempts if before is None or a.trial < before]
    levels = BaselineLevels(space, earlier)
    worth: dict[str, tuple[float, Candidate]] = {}
    for attempt in earlier:
        if attempt.candidate.engine != baseline.engine or attempt.candidate.fingerprint == baseline.fingerprint:
            continue
        values = [(goal, value) for goal in space.goals if (value := attempt.value(goal.at)) is not None and value > 0]
        if len(values) == len(space.goals):
            logs = (
                math.log(levels.now(goal.at, value, attempt.started_at)) * (1 if goal.maximize else -1)
                for goal, value in values
            )
            worth[attempt.candidate.fingerprint] = (sum(logs), attempt.candidate)
    ordered = sorted(worth.values(), key=lambda item: -item[0])
    return [candidate for _, candidate in ordered[:count]]


def confirmation_of(
    space: Space, attempts: Sequence[AttemptRecord], baselines: Mapping[str, Candidate]
) -> Confirmation | None:
    """What the study's last series of interleaved launches proves; None when there is none.

    Words such as `faster` hold for all comparisons together: their p-values are adjusted (Holm) for the number of
    finalists and objectives. Intervals are those of each comparison alone.
    """
    series = series_of(attempts)
    if not series:
        return None
    asked = space.budget.smallest_gain
    results = SeriesResults(space, series, asked, attempts)
    reading = _Reading(space, series, results, baselines, attempts)
    arms = reading.with_yields(reading.arms())
    return Confirmation(
        arms=arms,
        rounds=len({a.block for a in series}),
        chosen=reading.choose(arms),
        engines=reading.engines(arms),
        asked=asked,
        simulated=any(a.simulated for a in series),
    )


class _Reading:
    """Reads the arms of one series."""

    def __init__(
        self,
        space: Space,
        series: Sequence[AttemptRecord],
        results: SeriesResults,
        baselines: Mapping[str, Candidate],
        attempts: Sequence[AttemptRecord],
    ) -> None:
        self._space = space
        self._series = series
        self._results = results
        self._baselines = baselines
        self._attempts = attempts
        candidates = {a.candidate.fingerprint: a.candidate for a in series}
        known = {baseline.fingerprint for baseline in baselines.values()}
        self._finalists = [c for c in candidates.values() if c.fingerprint not in known]
        self._controls = [b for b in baselines.values() if b.fingerprint in candidates]

    def arms(self) -> list[ArmResult]:
        """Baselines first."""
        p_values = self._adjusted()
        return [self._arm(c, p_values) for c in (*self._controls, *self._finalists)]

    def _adjusted(self) -> dict[str, float]:
        """Adjusted p-values of every finalist and objective against its baseline, by `fingerprint objective`."""
        raw = {}
        for candidate in self._finalists:
            for goal in self._space.goals:
                contrast = self._results.contrast(goal, candidate, self._baselines[candidate.engine])
                if contrast is not None:
                    raw[f"{candidate.fingerprint} {goal.label}"] = contrast.p_value
        return holm(raw)

    def _arm(self, candidate: Candidate, p_values: Mapping[str, float]) -> ArmResult:
        own = [a for a in self._series if a.candidate.fingerprint == candidate.fingerprint]
        baseline = self._baselines[candidate.engine]
        changes = candidate.differs_from(baseline)
        key = candidate.fingerprint
        mine = {goal.label: p_values.get(f"{key} {goal.label}", 1.0) for goal in self._space.goals}
        reference = next(iter(self._baselines.values()))
        number = trial_of(self._attempts, candidate)
        assert number is not None, "the series is part of the study"
        return ArmResult(
            candidate=candidate,
            trial=number,
            trials=tuple(dict.fromkeys(a.trial for a in own)),
            changes=changes,
            launches=sum(a.measured is not None for a in own),
            failures=failed_for_good(self._series).get(key, 0),
            values=self._results.values(candidate),
            effects=self._results.effects(candidate, baseline, mine) if changes else (),
            broken=self._results.broken(candidate, reference),
        )

    def with_yields(self, arms: Sequence[ArmResult]) -> tuple[ArmResult, ...]:
        """Each finalist that is shown to be better than no simpler gainer yields to the simplest such one."""
        simplest = sorted((a for a in arms if a.gains and a.holds), key=lambda a: (len(a.changes), a.trial))
        found = []
        for arm in arms:
            rivals = (
                other
                for other in simplest
                if other.candidate.engine == arm.candidate.engine and len(other.changes) < len(arm.changes)
            )
            rival = next((other for other in rivals if not self._separates(arm, other)), None)
            found.append(arm if rival is None else replace(arm, yields_to=rival.trial))
        return tuple(found)

    def _separates(self, arm: ArmResult, other: ArmResult) -> bool:
        effects = self._results.effects(arm.candidate, other.candidate)
        return any(effect.finding is Finding.FASTER for effect in effects)

    def choose(self, arms: Sequence[ArmResult]) -> ArmResult:
        """The arm with the best product of objectives among those that gain and hold, and the baselines."""
        eligible = [a for a in arms if a.launches and (a.is_baseline or (a.gains and a.holds))] or list(arms)
        return max(eligible, key=lambda a: (self._worth(a.candidate), -len(a.changes), -a.trial))

    def _worth(self, candidate: Candidate) -> float:
        """Sum over objectives of the log ratio to the first arm; -inf when that is not known."""
        first = (self._controls or self._finalists)[0]
        contrasts = [self._results.contrast(goal, candidate, first) for goal in self._space.goals]
        return sum(-math.inf if c is None else c.estimate for c in contrasts)

    def engines(self, arms: Sequence[ArmResult]) -> tuple[EngineComparison, ...]:
        """Each engine's best in the order of the space; none with a single engine."""
        if len(self._baselines) < 2:
            return ()
        bests = [
            self.choose([a for a in arms if a.candidate.engine == engine])
            for engine in self._baselines
            if any(a.candidate.engine == engine for a in arms)
        ]
        reference = bests[0]
        return tuple(
            EngineComparison(
                best=best,
                effects=() if best is reference else self._results.effects(best.candidate, reference.candidate),
                reference=reference.candidate.engine,
            )
            for best in bests
        )

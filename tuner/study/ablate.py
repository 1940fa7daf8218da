"""Ablation: which settings carry the gain from the baseline to the winner?

Two stages of interleaved launches, with both ends in every round. First each setting alone is taken out of the winner;
what loses nothing is dropped. Then the reduced winner is measured again beside the full one, and its settings are put
into the baseline one by one, the most telling first, since an effect may depend on what else is set.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from tuner.domain.candidate import Candidate
from tuner.domain.proof import Ablation, AblationKind, AblationRow, Effect, Finding
from tuner.domain.study import AttemptRecord, StudyRecord
from tuner.domain.trial import Purpose
from tuner.domain.values import Value, same
from tuner.search.base import Proposal, Search
from tuner.study.agenda import Done
from tuner.study.inference import holm
from tuner.study.planned import Planned, PlannedArm, PlannedStage, Planner
from tuner.study.series import (
    Rotation,
    SeriesResults,
    ended,
    failed_for_good,
    in_block,
    missing_of_last_round,
    rounds_begun,
)
from tuner.study.settings import Setting, mixed, settings_between
from tuner.study.silence import inactive_knobs

_NOTHING = "no setting alone has a measurable effect"
_HIDDEN = "noise hides what each setting does alone: more launches of each (--launches) show smaller effects"


class AblationPlan:
    """One ablation: what to launch, and what the launches show.

    Args:
        record: the study.
        baseline: where it starts.
        winner: where it ends.
        rounds: launches of each configuration per stage.
        attempts: of the study, for what running servers said about the winner's settings.
    """

    def __init__(
        self,
        record: StudyRecord,
        *,
        baseline: Candidate,
        winner: Candidate,
        rounds: int,
        attempts: Sequence[AttemptRecord],
    ) -> None:
        self._space = record.space
        self._asked = record.space.budget.smallest_gain
        self._baseline = baseline
        self._winner = winner
        self._rounds = rounds
        self._settings = settings_between(record.space, baseline, winner)
        self._inactive = inactive_knobs(attempts, winner)

    @classmethod
    def as_launched(
        cls, record: StudyRecord, *, baseline: Candidate, winner: Candidate, attempts: Sequence[AttemptRecord]
    ) -> AblationPlan:
        """The plan that launches of an ablation followed: how often each configuration was to be launched is theirs."""

        def plan(rounds: int) -> AblationPlan:
            return cls(record, baseline=baseline, winner=winner, rounds=rounds, attempts=attempts)

        first = plan(1)
        series = first.series(attempts)
        ends = {baseline.fingerprint, winner.fingerprint}
        arms = first._first_stage()
        between = [c for c in arms if c.fingerprint not in ends and not _failed(series, c)]
        # The ends are launched in the second stage as well.
        return plan(max(1, min(rounds_begun(series, c) for c in between or arms)))

    def series(self, attempts: Sequence[AttemptRecord]) -> list[AttemptRecord]:
        """Its launches: the rounds in which every configuration lies between baseline and winner."""
        rounds: dict[int, list[AttemptRecord]] = {}
        for attempt in attempts:
            if attempt.purpose is Purpose.ABLATE and attempt.block is not None:
                rounds.setdefault(attempt.block, []).append(attempt)
        mine = [group for group in rounds.values() if all(self._between(a.candidate) for a in group)]
        return [attempt for group in mine for attempt in group]

    def _between(self, candidate: Candidate) -> bool:
        if candidate.engine != self._winner.engine:
            return False
        ends = (self._baseline.values, self._winner.values)
        names = {*candidate.values, *ends[0], *ends[1]}
        return all(any(same(candidate.values.get(n), end.get(n)) for end in ends) for n in names)

    # ---- what to launch

    def arms(self, earlier: Sequence[AttemptRecord]) -> Sequence[Candidate] | Done:
        """The configurations of the next round."""
        due = self._due(earlier, self._first_stage())
        if due:
            return _distinct([self._baseline, self._winner, *due])
        kept = self._kept(earlier)
        if not kept:
            return Done(self._nothing_kept(earlier))
        left = self._second_stage(earlier, kept)
        if not left:
            return Done("every setting was measured")
        return _distinct([self._baseline, self._winner, self._with(self._valid(kept)), *(c for c, _ in left)])

    def _second_stage(self, earlier: Sequence[AttemptRecord], kept: Sequence[Setting]) -> list[tuple[Candidate, int]]:
        """Configurations, and how many launches of each the second stage still wants."""
        left = self._left(earlier, [after for _, _, after in self._steps(kept)])
        minimal = self._with(self._valid(kept))
        if _same(minimal, self._winner):
            return left
        # Measured again, even where the first stage had it: it was chosen by what it showed there.
        again = [a for a in earlier if in_block(a) > self._stage_end(earlier)]
        return [*self._left(again, [minimal]), *(pair for pair in left if not _same(pair[0], minimal))]

    def planned(self, attempts: Sequence[AttemptRecord]) -> Planned:
        """What would still be launched, at most; both ends are launched in every round of both stages."""
        series, planner = ended(self.series(attempts)), Planner(attempts, {self._winner.engine: self._baseline})
        lacking = missing_of_last_round(series, self.arms)
        lacks = {c.fingerprint for c in lacking}

        def more(due: Iterable[tuple[Candidate, int]]) -> int:
            """Rounds that are still to begin."""
            return max((count - (c.fingerprint in lacks) for c, count in due), default=0)

        def stage(title: str, rounds: int, arms: Iterable[PlannedArm]) -> PlannedStage:
            ends = [("baseline", self._baseline), ("winner", self._winner)]
            launched = [planner.arm(role, end, rounds + (end.fingerprint in lacks)) for role, end in ends]
            return PlannedStage(title, tuple(arm for arm in (*launched, *arms) if arm.launches))

        if due := self._left(series, self._first_stage()):
            ends = {self._baseline.fingerprint, self._winner.fingerprint}
            alone = {s.without.fingerprint: s.name for s in self._settings if s.without is not None}
            between = [(c, n) for c, n in due if c.fingerprint not in ends]
            out = [planner.arm(f"without {alone[c.fingerprint]}", c, n) for c, n in between]
            stages = [stage("each setting alone taken out of the winner", more(due), out)]
            count = len(self._acting())
            # A single setting is either the whole winner, or nothing.
            if count and len(self._settings) > 1:
                rest = planner.unknown("what is left of the winner", self._winner.engine, self._rounds)
                role = "its settings put into the baseline one by one, the most telling first"
                built = [planner.unknown(role, self._winner.engine, self._rounds * (count - 1))] if count > 1 else []
                stages.append(stage("what loses nothing dropped", self._rounds, [rest, *built]))
            return Planned(tuple(stages))
        kept = self._kept(series)
        left = self._second_stage(series, kept)
        if not left:
            if lacking:
                return Planned((stage("what the last round lacks", 0, ()),))
            return Planned((), "every setting was measured" if kept else self._nothing_kept(series))
        rounds, minimal = max(n for _, n in left), self._with(self._valid(kept))
        reduced = [] if _same(minimal, self._winner) else [planner.arm("what is left of the winner", minimal, rounds)]
        names = {after.fingerprint: setting.name for setting, _, after in self._steps(kept)}
        known = {arm.fingerprint for arm in (self._baseline, self._winner, minimal)}
        built = [
            planner.arm(f"with {names[c.fingerprint]} on top", c, n) for c, n in left if c.fingerprint not in known
        ]
        return Planned((stage("what loses nothing dropped", more(left), [*reduced, *built]),))

    def _first_stage(self) -> list[Candidate]:
        alone = [s.without for s in self._settings if s.without is not None and not self._is_inactive(s)]
        return _distinct([self._baseline, self._winner, *alone])

    def _due(self, earlier: Sequence[AttemptRecord], arms: Iterable[Candidate]) -> list[Candidate]:
        return [candidate for candidate, _ in self._left(earlier, arms)]

    def _left(self, earlier: Sequence[AttemptRecord], arms: Iterable[Candidate]) -> list[tuple[Candidate, int]]:
        """Configurations that want more launches, and how many."""
        wanted = ((c, self._rounds - rounds_begun(earlier, c)) for c in arms if not _failed(earlier, c))
        return [(candidate, count) for candidate, count in wanted if count > 0]

    def _stage_end(self, series: Sequence[AttemptRecord]) -> int:
        """The block with which the first stage was complete: what was dropped is decided by launches up to it."""
        ends = [0]
        for candidate in self._first_stage():
            blocks = sorted({in_block(a) for a in series if a.candidate.fingerprint == candidate.fingerprint})
            ends += blocks[: self._rounds][-1:]
        return max(ends)

    # ---- what is kept

    def _is_inactive(self, setting: Setting) -> bool:
        return all(knob in self._inactive for knob in setting.knobs)

    def _kept(self, series: Sequence[AttemptRecord]) -> tuple[Setting, ...]:
        """Settings without which the winner is measurably worse, or cannot be launched; the most telling first."""
        end = self._stage_end(series)
        first = [a for a in series if in_block(a) <= end]
        results = SeriesResults(self._space, first, self._asked)
        weighted: list[tuple[float, Setting]] = []
        for setting in self._settings:
            if self._is_inactive(setting):
                continue
            if setting.without is None or _failed(first, setting.without):
                weighted.append((math.inf, setting))
                continue
            effects = self._effects_of(setting, setting.without, results)
            if any(effect.finding is Finding.FASTER for effect in effects):
                weighted.append((max(abs(effect.change or 0.0) for effect in effects), setting))
        return tuple(setting for _, setting in sorted(weighted, key=lambda item: -item[0]))

    def _nothing_kept(self, series: Sequence[AttemptRecord]) -> str:
        """Why the ablation ends after its first stage."""
        results = SeriesResults(self._space, series, self._asked)
        alone = [(s, s.without) for s in self._acting() if s.without is not None]
        hidden = any(e.finding is Finding.NOISE for s, without in alone for e in self._effects_of(s, without, results))
        return _HIDDEN if hidden else _NOTHING

    def _effects_of(self, setting: Setting, without: Candidate, results: SeriesResults) -> tuple[Effect, ...]:
        """What a setting adds to the rest of the winner, in words that hold for all settings together (Holm)."""
        raw = {
            f"{other.name} {goal.label}": contrast.p_value
            for other in self._settings
            if other.without is not None and not self._is_inactive(other)
            for goal in self._space.goals
            if (contrast := results.contrast(goal, self._winner, other.without)) is not None
        }
        adjusted = holm(raw)
        mine = {goal.label: adjusted.get(f"{setting.name} {goal.label}", 1.0) for goal in self._space.goals}
        return results.effects(self._winner, without, mine)

    def _acting(self) -> tuple[Setting, ...]:
        """All but those that the running server reported as inactive."""
        return tuple(setting for setting in self._settings if not self._is_inactive(setting))

    def _valid(self, kept: Sequence[Setting]) -> Sequence[Setting]:
        """What is kept; where a rule of the space forbids that alone, all that act; where it forbids that too, all."""

        def forbidden(settings: Sequence[Setting]) -> bool:
            candidate = self._with(settings)
            return any(self._space.broken_rules(candidate.engine, candidate.values))

        return next((some for some in (kept, self._acting()) if not forbidden(some)), self._settings)

    def _with(self, settings: Iterable[Setting]) -> Candidate:
        knobs = [knob for setting in settings for knob in setting.knobs]
        return mixed(self._space, self._baseline, self._winner, knobs)

    def _steps(self, kept: Sequence[Setting]) -> list[tuple[Setting, Candidate, Candidate]]:
        """(setting, without it, with it) from the baseline up; ends where no single setting may come next."""
        steps: list[tuple[Setting, Candidate, Candidate]] = []
        done, left = list[Setting](), list(kept)
        while left:
            before = self._with(done)
            following = next((s for s in left if self._is_step(s, before, self._with([*done, s]))), None)
            if following is None:
                break
            done.append(following)
            left.remove(following)
            steps.append((following, before, self._with(done)))
        return steps

    def _is_step(self, setting: Setting, before: Candidate, after: Candidate) -> bool:
        alone = set(after.differs_from(before)) <= set(setting.knobs)
        return alone and not any(self._space.broken_rules(after.engine, after.values))

    # ---- what came out

    def result(self, attempts: Sequence[AttemptRecord]) -> Ablation:
        """What the launches so far show."""
        series = self.series(attempts)
        results = SeriesResults(self._space, series, self._asked)
        telling = self._kept(series)
        kept, why = self._valid(telling), "a rule of the space forbids the configuration without it"
        if lost := self._lost_by(self._with(kept), results):
            # Together the dropped settings do carry something. What the server says does nothing is not among them.
            kept, why = self._valid(self._acting()), f"without it and others that show nothing alone: {lost}"
        minimal = self._with(kept)
        rows = [
            *(self._left_out(s, results, kept=s in kept, why="" if s in telling else why) for s in self._settings),
            *(self._added(*step, results) for step in self._steps(telling)),
        ]
        return Ablation(
            baseline=self._baseline,
            winner=self._winner,
            total=results.effects_together(self._winner, self._baseline),
            rows=tuple(rows),
            minimal=minimal,
            minimal_effects=() if _same(minimal, self._winner) else results.effects_together(minimal, self._winner),
            rounds=len({a.block for a in series}),
            complete=bool(series) and isinstance(self.arms(series), Done),
            simulated=any(a.simulated for a in series),
        )

    def _lost_by(self, reduced: Candidate, results: SeriesResults) -> str:
        """What the reduced winner is shown to lose that matters, over all objectives together; empty for nothing."""
        if _same(reduced, self._winner):
            return ""
        effects = results.effects_together(reduced, self._winner)
        lost = [e for e in effects if e.finding is Finding.SLOWER and abs(e.change or 0.0) >= self._asked]
        return ", ".join(f"{effect.objective} {effect.change or 0.0:+.1%}" for effect in lost)

    def _left_out(self, setting: Setting, results: SeriesResults, *, kept: bool, why: str) -> AblationRow:
        effects: tuple[Effect, ...] = ()
        if setting.without is not None and not self._is_inactive(setting):
            effects = self._effects_of(setting, setting.without, results)
        said = "; ".join(f"{knob}: {self._inactive[knob]}" for knob in setting.knobs if knob in self._inactive)
        return AblationRow(
            setting=setting.name,
            values=self._values(setting, setting.without or self._baseline, self._winner),
            kind=AblationKind.LEAVE_ONE_OUT,
            without=setting.without,
            with_it=self._winner,
            effects=effects,
            kept=kept,
            note="; ".join(filter(None, (setting.note, said and f"inactive: {said}", why if kept else ""))),
        )

    def _added(self, setting: Setting, before: Candidate, after: Candidate, results: SeriesResults) -> AblationRow:
        return AblationRow(
            setting=setting.name,
            values=self._values(setting, before, after),
            kind=AblationKind.ADD_ONE_IN,
            without=before,
            with_it=after,
            effects=results.effects(after, before),
            kept=True,
        )

    def _values(self, setting: Setting, before: Candidate, after: Candidate) -> dict[str, tuple[Value, Value]]:
        return {knob: (before.values.get(knob), after.values.get(knob)) for knob in setting.knobs}


class AblateAgenda:
    """Launches of an ablation; it begins, goes on, or finds that everything was launched."""

    def __init__(self, plan: AblationPlan, *, search: Search, seed: int) -> None:
        self._plan = plan
        self._rotation = Rotation(search, Purpose.ABLATE, seed)

    def next(self, attempts: list[AttemptRecord], in_hand: tuple[Proposal, ...]) -> Proposal | Done | None:
        """See `tuner.study.agenda.Agenda.next`; the reason becomes the study's, so it says what of it has ended."""
        found = self._rotation.next(attempts, self._plan.series(attempts), in_hand, self._plan.arms)
        return Done(f"ablation: {found.reason}") if isinstance(found, Done) else found


def taken_apart(attempts: Sequence[AttemptRecord], baselines: Mapping[str, Candidate]) -> Candidate | None:
    """The winner of a study's last ablation; None when there was none.

    Every round of an ablation holds both of its ends, and everything else lies between them.

    Args:
        attempts: all of the study.
        baselines: engine → baseline.
    """
    launches = [a for a in attempts if a.purpose is Purpose.ABLATE and a.block is not None]
    last = max((in_block(a) for a in launches), default=None)
    arms = [a.candidate for a in launches if a.block == last and a.candidate.engine in baselines]
    return max(arms, key=lambda c: len(c.differs_from(baselines[c.engine])), default=None)


def _failed(series: Sequence[AttemptRecord], candidate: Candidate) -> bool:
    return candidate.fingerprint in failed_for_good(series)


def _same(a: Candidate, b: Candidate) -> bool:
    return a.fingerprint == b.fingerprint


def _distinct(candidates: Iterable[Candidate]) -> list[Candidate]:
    return list({candidate.fingerprint: candidate for candidate in candidates}.values())

"""The front: configurations that no other one beats, and named picks from it."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from tuner.domain.candidate import Candidate
from tuner.domain.load import LoadPoint
from tuner.domain.measurement import SpreadKind
from tuner.domain.space import Objective
from tuner.domain.values import Value
from tuner.errors import NothingFeasible, StudyError

PICKS = ("single-stream", "throughput", "knee", "baseline")
"""Names that `Front.pick` knows besides trial numbers."""

DEFAULT_PICK = "knee"


@dataclass(frozen=True, slots=True)
class Estimate:
    """One objective of one configuration, over all its launches.

    Attributes:
        center: median over launches, in the metric's unit.
        low: lower end of the 95 % interval, or None when the sample is too small to have one.
        high: upper end.
        launches: how many launches were measured.
        spread_kind: what the interval was computed from.
    """

    center: float
    low: float | None = None
    high: float | None = None
    launches: int = 1
    spread_kind: SpreadKind = SpreadKind.NONE

    @property
    def below(self) -> float:
        """Distance from the centre to the lower end; 0 without an interval."""
        return 0.0 if self.low is None else self.center - self.low

    @property
    def above(self) -> float:
        """Distance from the centre to the upper end; 0 without an interval."""
        return 0.0 if self.high is None else self.high - self.center


@dataclass(frozen=True, slots=True)
class Gain:
    """A configuration's value over the baseline's, as a ratio (1.12 = 12 % more), with its 95 % interval."""

    ratio: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """Where one configuration stands after all its launches.

    Attributes:
        trials: numbers of the trials that launched it, first to last.
        candidate: the configuration.
        values: one estimate per objective, in the order of `Space.goals`.
        broken: limits that it breaks → by how much, as a share of the bound.
        of_its_time: limits, by label, that were judged by the baseline at each launch's time, since the machine drifts.
        is_baseline: whether it is the baseline that gains are reckoned from.
        simulated: whether its numbers are a model's.
    """

    trials: tuple[int, ...]
    candidate: Candidate
    values: tuple[Estimate, ...]
    broken: Mapping[str, float] = field(default_factory=dict)
    of_its_time: frozenset[str] = frozenset()
    is_baseline: bool = False
    simulated: bool = False

    @property
    def trial(self) -> int:
        """The trial that it is named by: the first."""
        return self.trials[0]

    @property
    def feasible(self) -> bool:
        """True when every limit is kept."""
        return not self.broken


def gain_over(value: Estimate, baseline: Estimate) -> Gain | None:
    """The ratio of two estimates, None when either is not positive.

    The interval joins those of both on the logarithmic scale, where a ratio is a difference: the distances to the
    interval ends add in squares (the method of variance estimates recovery, Zou & Donner, Stat. Med. 27, 2008).
    """
    if value.center <= 0 or baseline.center <= 0:
        return None
    ratio = value.center / baseline.center
    ends = (value.low, value.high, baseline.low, baseline.high)
    if any(end is None or end <= 0 for end in ends):
        return Gain(ratio)
    assert value.low is not None
    assert value.high is not None
    assert baseline.low is not None
    assert baseline.high is not None
    down = math.hypot(math.log(value.center / value.low), math.log(baseline.high / baseline.center))
    up = math.hypot(math.log(value.high / value.center), math.log(baseline.center / baseline.low))
    return Gain(ratio, ratio * math.exp(-down), ratio * math.exp(up))


def beats(a: Standing, b: Standing, maximize: Sequence[bool]) -> bool:
    """Whether `a` is at least as good as `b` on every objective, and better beyond noise on at least one.

    `maximize` holds each objective's direction.

    So two configurations that noise cannot tell apart both stay. Beyond noise: the difference exceeds the half-width
    of its own 95 % interval, which is made of both intervals' in squares (see `gain_over`); without intervals, any
    difference counts.
    """
    beyond = False
    for own, other, more_is_better in zip(a.values, b.values, maximize, strict=True):
        better, worse = (own, other) if more_is_better else (other, own)
        difference = better.center - worse.center
        if difference < 0:
            return False
        beyond = beyond or difference > math.hypot(better.below, worse.above)
    return beyond


OF_ITS_TIME = "against the baseline at the time of the launch, since the machine drifts"
"""Where a limit is judged so (docs/adr/0005), whoever tells it says so."""


def broken_words(broken: Mapping[str, float], of_its_time: Collection[str] = ()) -> str:
    """`output_tok_s@128 min by 2.4 %`; of a limit in `of_its_time`, also what it is against."""
    return ", ".join(
        f"{label} by {excess * 100:.1f} %{f' ({OF_ITS_TIME})' if label in of_its_time else ''}"
        for label, excess in broken.items()
    )


@dataclass(frozen=True, slots=True)
class Front:
    """What a study found.

    Attributes:
        goals: the objectives.
        members: configurations that keep every limit and that none beats, best on the first objective first.
        beaten: those that keep every limit and are beaten, in trial order.
        infeasible: those that break a limit; never members, however fast.
        baseline: where the user started; None when it could not be measured.
        starts: engine → its baseline, also of those that could not be measured.
    """

    goals: tuple[Objective, ...]
    members: tuple[Standing, ...]
    beaten: tuple[Standing, ...]
    infeasible: tuple[Standing, ...]
    baseline: Standing | None
    starts: Mapping[str, Candidate] = field(default_factory=dict)

    @classmethod
    def of(
        cls, goals: Sequence[Objective], standings: Sequence[Standing], starts: Mapping[str, Candidate] | None = None
    ) -> Front:
        """Sort configurations into members, beaten and infeasible.

        Args:
            goals: the objectives.
            standings: every configuration.
            starts: engine → its baseline; None with one engine, whose baseline says so itself.
        """
        own = {s.candidate.engine: s.candidate for s in standings if s.is_baseline}
        feasible = [standing for standing in standings if standing.feasible]
        ordered = sorted(feasible, key=lambda s: (_badness(s, goals, 0), s.trial))
        # Whoever beats a standing is no worse on the first objective, and mostly among the first.
        firsts = [_badness(s, goals, 0) for s in ordered]
        rivals = (ordered[: bisect.bisect_right(firsts, first)] for first in firsts)
        directions = [goal.maximize for goal in goals]
        beaten = {
            s.trial
            for s, some in zip(ordered, rivals, strict=True)
            if any(beats(other, s, directions) for other in some)
        }
        return cls(
            goals=tuple(goals),
            members=tuple(s for s in ordered if s.trial not in beaten),
            beaten=tuple(s for s in feasible if s.trial in beaten),
            infeasible=tuple(s for s in standings if not s.feasible),
            baseline=next((s for s in standings if s.is_baseline), None),
            starts={**own, **(starts or {})},
        )

    def is_start(self, standing: Standing) -> bool:
        """Whether it is the baseline of its own engine."""
        start = self.starts.get(standing.candidate.engine)
        return start is not None and start.fingerprint == standing.candidate.fingerprint

    def changes(self, standing: Standing) -> Mapping[str, tuple[Value, Value]]:
        """Knob → (value in the baseline of its own engine, own value); empty where that baseline is not known."""
        start = self.starts.get(standing.candidate.engine)
        return {} if start is None else standing.candidate.differs_from(start)

    def gains(self, standing: Standing) -> tuple[Gain | None, ...]:
        """Each objective against the baseline; None where there is none to compare with."""
        if self.baseline is None:
            return (None,) * len(self.goals)
        return tuple(map(gain_over, standing.values, self.baseline.values))

    def pick(self, rule: str) -> Standing:
        """One configuration by a named rule, or by its trial number.

        `single-stream`: best on the objective at the lowest load; `throughput`: at the highest (see `ends_of_load`);
        `knee`: gives up the least, in per cent of the front's best on each objective (the member closest to that ideal
        point: compromise programming, Zeleny 1973, on logarithms); `baseline`; a number: that trial, on the front or
        not.

        Raises:
            StudyError: no such rule, or the trial or baseline was not measured.
            NothingFeasible: the front is empty.
        """
        if rule == "baseline" and self.baseline is not None:
            return self.baseline
        if rule.isdecimal():
            return self._trial(int(rule))
        lightest, heaviest = ends_of_load(self.goals)
        rules: Mapping[str, Callable[[Standing], float]] = {
            "single-stream": lambda s: _badness(s, self.goals, lightest),
            "throughput": lambda s: _badness(s, self.goals, heaviest),
            "knee": self._distance_to_ideal,
        }
        if rule == "baseline":
            raise StudyError("the baseline has no measurement", hint="`tuner study failures` says why; pick another")
        if rule not in rules:
            raise StudyError(f"no such pick: {rule}", hint=f"choose {', '.join(PICKS)} or a trial number")
        if not self.members:
            raise self.nothing_feasible()
        return min(self._contenders, key=rules[rule])

    def nothing_feasible(self) -> NothingFeasible:
        """The error of an empty front: by how much the baseline breaks its limits, and who comes closest."""
        said = "no configuration was measured that keeps every limit"
        if self.baseline is not None and self.baseline.broken:
            said += f"; the baseline itself breaks {broken_words(self.baseline.broken, self.baseline.of_its_time)}"
        closest = min(self.infeasible, key=lambda s: max(s.broken.values()), default=None)
        hint = "loosen the limit, or give the search more launches"
        if closest is not None and not closest.is_baseline:
            broken = broken_words(closest.broken, closest.of_its_time)
            hint = f"trial {closest.trial} comes closest: it breaks {broken}; {hint}"
        return NothingFeasible(said, hint=hint)

    @property
    def _contenders(self) -> tuple[Standing, ...]:
        """Members that the named picks choose from: one lucky launch does not win over what was launched again.

        So with a member beside the baseline that was launched more than once, those with one launch are left out.
        """
        again = tuple(member for member in self.members if all(value.launches > 1 for value in member.values))
        return again if any(not member.is_baseline for member in again) else self.members

    def _trial(self, number: int) -> Standing:
        everything = (*self.members, *self.beaten, *self.infeasible)
        found = next((s for s in everything if number in s.trials), None)
        if found is None:
            known = ", ".join(str(s.trial) for s in self.members)
            raise StudyError(f"trial {number} has no measurement", hint=f"on the front: {known or 'none'}")
        return found

    def _distance_to_ideal(self, standing: Standing) -> float:
        losses = []
        for index, goal in enumerate(self.goals):
            best = (max if goal.maximize else min)(member.values[index].center for member in self.members)
            own = standing.values[index].center
            comparable = own > 0 and best > 0
            losses.append(math.log(own / best) if comparable else 0.0 if own == best else math.inf)
        return math.hypot(*losses)


def ends_of_load(goals: Sequence[Objective]) -> tuple[int, int]:
    """Indices of the objectives at the lowest and at the highest load; the same only where there is but one objective.

    A level above one keeps a server as busy as so many requests can, so the highest such level is the highest load;
    a rate is one only where there is no such level. Of several objectives there, a throughput comes before a latency.
    """

    def weight(index: int) -> tuple[int, LoadPoint, bool]:
        load = goals[index].load
        return (0 if load.is_single_stream else 1 if load.level is None else 2), load, goals[index].maximize

    heaviest = max(range(len(goals)), key=weight)
    others = [index for index in range(len(goals)) if index != heaviest] or [heaviest]
    return min(others, key=lambda index: goals[index].load), heaviest


def _badness(standing: Standing, goals: Sequence[Objective], index: int) -> float:
    """An objective's value, turned so that less is better."""
    value = standing.values[index].center
    return -value if goals[index].maximize else value

"""The study as Optuna keeps it: how candidates and verdicts become parameters, values, states and attributes.

Knobs are parameters (prefixed by the engine's name when the space has several, with `engine` as a parameter of its
own), so that Optuna's samplers, dashboard and importance evaluators work on the study as on any other. Failures are
told as PRUNED with a positive constraint `launch`: samplers ignore FAIL and ask for the same hanging configuration
again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, Trial, TrialState

from tuner.domain.candidate import Candidate
from tuner.domain.conditions import comparisons
from tuner.domain.outcome import FAILURES, FailureClass
from tuner.domain.space import Space
from tuner.domain.values import spell
from tuner.search.base import Infeasible, Partial, PriorObservation, Restated, Scored, Verdict
from tuner.search.history import Ending, History, Observation
from tuner.search.lattice import Axis, Lattice, Points

ENGINE = "engine"
LAUNCH = "launch"
"""Constraint that a failed launch breaks."""

_CANDIDATE = "candidate"
_INACTIVE = "inactive"
_VERDICT = "verdict"
_STEP_TOLERANCE = 1e-9
_DIGITS = 10
"""Optuna counts steps in decimals: 0.05 must not be 0.050000000000000044."""


class Notebook:
    """Translates between lattice points and the trials of one Optuna study.

    Args:
        space: the space file.
        lattices: engine → its lattice, in the space's order.
    """

    def __init__(self, space: Space, lattices: Mapping[str, Lattice]) -> None:
        self.lattices = lattices
        self.objectives = space.goals
        self.limits = space.limits
        self._labels = {(e, a.name): _labels(a) for e, lattice in lattices.items() for a in lattice.axes}
        self._order = {engine: _dependency_order(lattice) for engine, lattice in lattices.items()}
        self._read: dict[int, tuple[str, Observation] | None] = {}
        self._restated: Mapping[int, Restated] = {}
        self.distributions: dict[str, BaseDistribution] = {}
        if len(lattices) > 1:
            self.distributions[ENGINE] = CategoricalDistribution(list(lattices))
        for engine, lattice in lattices.items():
            for axis in lattice.axes:
                self.distributions[self.parameter(engine, axis.name)] = self._distribution(engine, axis)

    def parameter(self, engine: str, knob: str) -> str:
        """Name of a knob's parameter."""
        return knob if len(self.lattices) == 1 else f"{engine}.{knob}"

    def _distribution(self, engine: str, axis: Axis) -> BaseDistribution:
        step = _even_step(axis)
        if step is not None:
            low, high = axis.values[0], axis.values[-1]
            if isinstance(step, int):
                return IntDistribution(int(low or 0), int(high or 0), step=step)
            first, last = (round(float(end or 0), _DIGITS) for end in (low, high))
            return FloatDistribution(first, last, step=step)
        return CategoricalDistribution(self._labels[engine, axis.name])

    def parameters(self, engine: str, point: Points) -> dict[str, Any]:
        """The parameters of a point: the engine, and its active knobs only."""
        lattice = self.lattices[engine]
        absent = lattice.inactive(point[None])[0]
        named: dict[str, Any] = {ENGINE: engine} if len(self.lattices) > 1 else {}
        for column, axis in enumerate(lattice.axes):
            if not absent[column]:
                name = self.parameter(engine, axis.name)
                numeric = not isinstance(self.distributions[name], CategoricalDistribution)
                index = int(point[column])
                named[name] = axis.values[index] if numeric else self._labels[engine, axis.name][index]
        return named

    def suggest(self, trial: Trial) -> tuple[str, Points]:
        """Let a trial's sampler choose an engine and its active knobs, and record both as parameters."""
        engine = next(iter(self.lattices))
        if len(self.lattices) > 1:
            engine = str(trial.suggest_categorical(ENGINE, list(self.lattices)))
        lattice = self.lattices[engine]
        row = np.array([axis.hold for axis in lattice.axes], dtype=np.int64)
        for column in self._order[engine]:
            if not lattice.inactive(row[None])[0, column]:
                row[column] = self._suggest_index(trial, engine, lattice.axes[column])
        point: Points = lattice.canonical(row[None])[0]
        return engine, point

    def _suggest_index(self, trial: Trial, engine: str, axis: Axis) -> int:
        name = self.parameter(engine, axis.name)
        match self.distributions[name]:
            case IntDistribution() as d:
                return axis.index(trial.suggest_int(name, d.low, d.high, step=d.step))
            case FloatDistribution() as d:
                return axis.index(trial.suggest_float(name, d.low, d.high, step=d.step))
            case _:
                labels = self._labels[engine, axis.name]
                return labels.index(trial.suggest_categorical(name, labels))

    def note_candidate(self, trial: Trial, candidate: Candidate, point: Points) -> None:
        """Record the exact candidate of a trial, and where its inactive knobs are held."""
        trial.set_user_attr(_CANDIDATE, candidate_facts(candidate))
        lattice = self.lattices[candidate.engine]
        absent = lattice.inactive(point[None])[0]
        held = {axis.name: spell(axis.values[axis.hold]) for axis, off in zip(lattice.axes, absent, strict=True) if off}
        if held:
            trial.set_user_attr(_INACTIVE, held)

    def note_verdict(self, trial: Trial, verdict: Verdict) -> tuple[TrialState, list[float] | None]:
        """Record a verdict's constraints and attributes; the state and values to tell Optuna."""
        facts: dict[str, Any] = {"seconds": verdict.seconds}
        match verdict:
            case Infeasible(failure_class=failure_class):
                trial.set_user_attr(_VERDICT, facts | {"failure": failure_class.value})
                if not FAILURES[failure_class].teaches_sampler:
                    return TrialState.FAIL, None
                trial.set_constraint(LAUNCH, 1.0)
                return TrialState.PRUNED, None
            case Partial(values=values, reason=reason):
                trial.set_constraint(LAUNCH, 0.0)
                trial.set_user_attr(_VERDICT, facts | {"partial": list(values), "reason": reason})
                return TrialState.PRUNED, None
            case Scored():
                trial.set_constraint(LAUNCH, 0.0)
                for label, violation in verdict.violations.items():
                    trial.set_constraint(label, violation)
                for name, value in verdict.metrics.items():
                    if math.isfinite(value):
                        trial.set_user_attr(name, value)
                trial.set_user_attr(_VERDICT, facts | {"spread": list(verdict.spread)})
                return TrialState.COMPLETE, list(verdict.values)

    def restate(self, launches: Mapping[int, Restated]) -> None:
        """See `tuner.search.base.Search.restate`."""
        before, self._restated = self._restated, launches
        self._read = {n: entry for n, entry in self._read.items() if before.get(n) == launches.get(n)}

    def history(self, trials: Iterable[FrozenTrial], engine: str) -> History:
        """What one engine's trials showed; trials that teach nothing are left out."""
        found: list[Observation] = []
        for trial in trials:
            if trial.number in self._read:
                entry = self._read[trial.number]
            else:
                entry = self._observation(trial)
                if trial.state.is_finished():
                    self._read[trial.number] = entry
            if entry is not None and entry[0] == engine:
                found.append(entry[1])
        return History(found, self.lattices[engine].dimensions, len(self.objectives), len(self.limits))

    def _observation(self, trial: FrozenTrial) -> tuple[str, Observation] | None:
        candidate = candidate_of(trial)
        if candidate is None or candidate.engine not in self.lattices or trial.state is TrialState.FAIL:
            return None
        facts: Mapping[str, Any] = trial.user_attrs.get(_VERDICT, {})
        objectives = len(self.objectives)
        values, ending, failure = np.full(objectives, np.nan), Ending.PENDING, None
        limits, spread = np.full(len(self.limits), np.nan), np.zeros(objectives)
        if trial.state is TrialState.COMPLETE:
            ending = Ending.SCORED
            values = self.gains(trial.values)
            limits = self._broken(trial.constraints)
            for i, (error, value) in enumerate(zip(facts.get("spread", ()), trial.values, strict=False)):
                if error is not None and math.isfinite(error):
                    spread[i] = abs(error / value)
        elif "partial" in facts:
            ending = Ending.PARTIAL
            values = self.gains(facts["partial"])
        elif trial.state is TrialState.PRUNED:
            ending = Ending.FAILED
            failure = FailureClass(facts.get("failure", FailureClass.UNKNOWN.value))
        now = self._restated.get(trial.number)
        if now is not None and ending in (Ending.SCORED, Ending.PARTIAL):
            values, limits = self.gains(now.values), self._broken(now.violations)
            spread = np.hypot(spread, now.doubt)
            ending = Ending.SCORED if np.isfinite(values).all() else Ending.PARTIAL
        point = self.lattices[candidate.engine].encode(candidate)
        seconds = float(facts.get("seconds", 0.0))
        seen = Observation(trial.number, point, ending, values, limits, spread, failure, seconds)
        return candidate.engine, seen

    def gains(self, values: Sequence[float | None]) -> np.ndarray:
        """Objective values as the models see them: log, larger is better; NaN where not positive and finite."""
        logs = [
            math.log(v) * (1 if goal.maximize else -1) if is_number(v) and v is not None else math.nan
            for v, goal in zip(values, self.objectives, strict=True)
        ]
        return np.array(logs)

    def hints(self, earlier: Iterable[PriorObservation]) -> dict[str, list[Observation]]:
        """Launches of earlier studies by engine: log ratios to the baseline there, -1 for a trial number."""
        found: dict[str, list[Observation]] = {engine: [] for engine in self.lattices}
        for hint in earlier:
            lattice = self.lattices.get(hint.candidate.engine)
            if lattice is not None:
                found[hint.candidate.engine].append(
                    Observation(
                        trial=-1,
                        point=lattice.encode(hint.candidate),
                        ending=Ending.SCORED if hint.failure is None else Ending.FAILED,
                        values=self.gains(hint.ratios),
                        limits=np.full(len(self.limits), np.nan),
                        spread=np.full(len(self.objectives), hint.doubt),
                        failure=hint.failure,
                        seconds=hint.seconds,
                        trust=hint.trust,
                    )
                )
        return found

    def value(self, objective: int, gain: float) -> float:
        """The inverse of `gains` for one objective."""
        return math.exp(gain if self.objectives[objective].maximize else -gain)

    def _broken(self, violations: Mapping[str, float]) -> np.ndarray:
        """Log ratio of measured value and bound, signed so that > 0 breaks the limit (near 0 it is the violation)."""
        logs = []
        for limit in self.limits:
            share = violations.get(limit.label, math.nan)
            upper = limit.max is not None or limit.max_of_baseline is not None
            ratio = 1 + share if upper else 1 - share
            logs.append((math.log(ratio) if upper else -math.log(ratio)) if ratio > 0 else math.copysign(5.0, share))
        return np.array(logs)


def is_number(value: float | None) -> bool:
    """Whether a metric can be compared at all: positive and finite."""
    return value is not None and math.isfinite(value) and value > 0


def candidate_facts(candidate: Candidate) -> dict[str, Any]:
    """A candidate as a trial's attribute."""
    return {"engine": candidate.engine, "values": dict(candidate.values)}


def candidate_of(trial: FrozenTrial) -> Candidate | None:
    """The exact candidate of a trial, or None when none was noted."""
    facts = trial.user_attrs.get(_CANDIDATE)
    return None if facts is None else Candidate(facts["engine"], facts["values"])


def queued(candidate: Candidate) -> dict[str, Any]:
    """Attributes of a trial that waits in the queue."""
    return {_CANDIDATE: candidate_facts(candidate)}


def _labels(axis: Axis) -> list[str]:
    """One distinct text per value, as a person writes it where that is unambiguous."""
    spelled = [spell(value) for value in axis.values]
    if len(set(spelled)) == len(spelled):
        return spelled
    return [f"{text} ({type(value).__name__})" for text, value in zip(spelled, axis.values, strict=True)]


def _even_step(axis: Axis) -> int | float | None:
    """The step of an axis whose values are numbers at equal distances, or None."""
    if not axis.ordinal or len(axis.values) < 2:
        return None
    numbers = [v for v in axis.values if isinstance(v, int | float) and not isinstance(v, bool)]
    if len(numbers) < len(axis.values):
        return None
    steps = np.diff(numbers)
    if steps[0] <= 0 or not np.allclose(steps, steps[0], rtol=0, atol=_STEP_TOLERANCE * steps[0] + 1e-12):
        return None
    return int(steps[0]) if all(isinstance(v, int) for v in numbers) else round(float(steps[0]), _DIGITS)


def _dependency_order(lattice: Lattice) -> list[int]:
    """Axes so that each stands after those that its condition names; a circle is left in file order."""
    column = {axis.name: i for i, axis in enumerate(lattice.axes)}
    ordered: list[int] = []
    waiting = list(range(len(lattice.axes)))
    while waiting:
        ready = [i for i in waiting if not _needs(lattice.axes[i], column) & (set(waiting) - {i})]
        for i in ready or waiting[:1]:
            ordered.append(i)
            waiting.remove(i)
    return ordered


def _needs(axis: Axis, column: Mapping[str, int]) -> set[int]:
    if axis.condition is None:
        return set()
    return {column[c.name] for c in comparisons(axis.condition) if c.name in column}

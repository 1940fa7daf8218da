"""The search methods that the benchmark compares: ours, as a study uses it, and its peers."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import optuna

from benchmarks.problems.protocol import ENGINE, FAILURES, KEEP, Problem
from tuner.domain.candidate import Candidate
from tuner.search.base import Infeasible, Scored
from tuner.search.study import open_search


class Method(Protocol):
    """Proposes candidates and hears results, one after the other."""

    def ask(self) -> Candidate:
        """The next candidate."""
        ...

    def tell(self, result: Mapping[str, Any]) -> None:
        """The result of the last candidate's launch, as a problem's `evaluate` returns it."""
        ...


class ThroughStudy:
    """A sampler behind `open_search`, exactly as a study's loop drives it."""

    def __init__(self, problem: Problem, seed: int, sampler: str) -> None:
        self._objectives = problem.objectives
        self._search = open_search(
            problem.space, storage_url=None, study_name="benchmark", baselines={ENGINE: problem.baseline},
            seed=seed, sampler=sampler,
        )  # fmt: skip
        self._trial = -1

    def ask(self) -> Candidate:
        """See `Method`."""
        proposal = self._search.ask()
        self._trial = proposal.trial
        return proposal.candidate

    def tell(self, result: Mapping[str, Any]) -> None:
        """See `Method`."""
        seconds = float(result["seconds"])
        if result["status"] == "ok":
            values = tuple(float(result["values"][name]) for name in self._objectives)
            self._search.tell(self._trial, Scored(values, seconds=seconds))
        else:
            self._search.tell(self._trial, Infeasible(FAILURES[result["status"]], seconds))


class PlainOptuna:
    """Optuna as its tutorial has it: only active knobs suggested, no check for repeats, failures told FAIL."""

    def __init__(self, problem: Problem, seed: int) -> None:
        warnings.simplefilter("ignore")
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._problem = problem
        directions = ["maximize" if up else "minimize" for up in problem.maximize]
        self._study = optuna.create_study(directions=directions, sampler=optuna.samplers.TPESampler(seed=seed))
        knobs = problem.space.knobs_of(ENGINE)
        start = problem.baseline.values
        self._study.enqueue_trial({name: knobs[name].grid.index(value) for name, value in start.items()})
        self._trial: optuna.Trial | None = None

    def ask(self) -> Candidate:
        """See `Method`."""
        self._trial = self._study.ask()
        knobs = self._problem.space.knobs_of(ENGINE)
        chosen: dict[str, Any] = {}
        for name, knob in knobs.items():
            if knob.condition is None or knob.condition.holds(chosen):
                last = len(knob.grid) - 1
                index = (
                    self._trial.suggest_int(name, 0, last)
                    if knob.ordinal
                    else self._trial.suggest_categorical(name, range(last + 1))
                )
                chosen[name] = knob.grid[index]
        return Candidate.of(self._problem.space, ENGINE, chosen)

    def tell(self, result: Mapping[str, Any]) -> None:
        """See `Method`."""
        assert self._trial is not None
        if result["status"] != "ok":
            self._study.tell(self._trial, state=optuna.trial.TrialState.FAIL)
            return
        self._study.tell(self._trial, [result["values"][name] for name in self._problem.objectives])


def _complete(problem: Problem, values: Mapping[str, Any]) -> Candidate:
    """The candidate with these values; a knob that is active by them and has none of its own takes its first one."""
    firsts = {name: knob.grid[0] for name, knob in problem.space.knobs_of(ENGINE).items()}
    return Candidate.of(problem.space, ENGINE, {**firsts, **values})


class OneAtATime:
    """Every value alone against the baseline, then mixtures of the values that helped the first objective."""

    def __init__(self, problem: Problem, seed: int) -> None:
        self._problem = problem
        self._rng = np.random.default_rng([seed, 2])
        self._knobs = problem.space.knobs_of(ENGINE)
        baseline = dict(problem.baseline.values)
        singles = [
            _complete(problem, baseline | {name: value}) for name, knob in self._knobs.items() for value in knob.grid
        ]
        distinct = {c.fingerprint: c for c in singles}
        distinct.pop(problem.baseline.fingerprint, None)
        queue = list(distinct.values())
        self._rng.shuffle(queue)  # type: ignore[arg-type]
        self._queue = [problem.baseline, *queue]
        self._gains: dict[str, tuple[float, Any]] = {}
        self._last = problem.baseline
        self._at_baseline: list[float] = []

    def ask(self) -> Candidate:
        """See `Method`."""
        if self._queue:
            self._last = self._queue.pop(0)
        else:
            mixed = dict(self._problem.baseline.values)
            mixed |= {name: value for name, (_, value) in self._gains.items() if self._rng.random() < _KEPT_SHARE}
            self._last = _complete(self._problem, mixed)
        return self._last

    def tell(self, result: Mapping[str, Any]) -> None:
        """See `Method`."""
        if result["status"] != "ok":
            return
        signs = [1 if up else -1 for up in self._problem.maximize]
        values = [s * np.log(result["values"][n]) for s, n in zip(signs, self._problem.objectives, strict=True)]
        if not self._at_baseline:
            self._at_baseline = values
            return
        gain = values[0] - self._at_baseline[0]
        changed = self._last.differs_from(self._problem.baseline)
        kept = all(v >= b + np.log(0.97) for v, b in zip(values[1:], self._at_baseline[1:], strict=True))
        for name, (_, value) in changed.items() if len(changed) == 1 and kept else ():
            if gain > self._gains.get(name, (0.0, None))[0]:
                self._gains[name] = (gain, value)


class CoordinateDescent:
    """Greedy sweeps over the knobs in random order: each value in turn, kept when its launch says it is better.

    Better means a higher first objective; what the others fall short of 97 % of the baseline's is taken off threefold.
    """

    def __init__(self, problem: Problem, seed: int) -> None:
        self._problem = problem
        self._rng = np.random.default_rng([seed, 3])
        self._knobs = dict(problem.space.knobs_of(ENGINE))
        self._signs = [1 if up else -1 for up in problem.maximize]
        self._queue: list[tuple[str, Any]] = []
        self._seen = {problem.baseline.fingerprint}
        self._best, self._worth = problem.baseline, -np.inf
        self._at_baseline: np.ndarray | None = None
        self._last = problem.baseline

    def ask(self) -> Candidate:
        """See `Method`."""
        swept = 0
        while self._at_baseline is not None and swept < _FRUITLESS_SWEEPS:
            if not self._queue:
                swept += 1
                names = self._rng.permutation(list(self._knobs))
                self._queue = [(str(name), value) for name in names for value in self._knobs[name].grid]
            name, value = self._queue.pop(0)
            moved = _complete(self._problem, {**self._best.values, name: value})
            if moved.fingerprint not in self._seen:
                self._seen.add(moved.fingerprint)
                self._last = moved
                break
        return self._last

    def tell(self, result: Mapping[str, Any]) -> None:
        """See `Method`."""
        if result["status"] != "ok":
            return
        measured = [result["values"][name] for name in self._problem.objectives]
        values = np.array([sign * np.log(value) for sign, value in zip(self._signs, measured, strict=True)])
        if self._at_baseline is None:
            self._at_baseline = values
        short = np.maximum(self._at_baseline[1:] + np.log(KEEP) - values[1:], 0.0).sum()
        worth = float(values[0] - _SHORTFALL_WEIGHT * short)
        if worth > self._worth:
            self._worth, self._best = worth, self._last


_KEPT_SHARE = 0.8
_SHORTFALL_WEIGHT = 3.0
_FRUITLESS_SWEEPS = 2

OURS = "tuner"

METHODS: Mapping[str, Callable[[Problem, int], Method]] = {
    OURS: lambda problem, seed: ThroughStudy(problem, seed, "tuner"),
    "tpe": lambda problem, seed: ThroughStudy(problem, seed, "tpe"),
    "tpe-plain": PlainOptuna,
    "nsga2": lambda problem, seed: ThroughStudy(problem, seed, "nsga2"),
    "gp": lambda problem, seed: ThroughStudy(problem, seed, "gp"),
    "one-at-a-time": OneAtATime,
    "coordinate-descent": CoordinateDescent,
    "random": lambda problem, seed: ThroughStudy(problem, seed, "random"),
}

ABSENT: Mapping[str, str] = {} if importlib.util.find_spec("torch") else {"gp": "Optuna's GP sampler needs torch"}
"""Methods that cannot run here, and why."""

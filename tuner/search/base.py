"""What a search is: it proposes candidates, hears verdicts, and can say why.

A study's loop needs nothing but the names in this module and `tuner.search.study.open_search`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tuner.domain.candidate import Candidate
from tuner.domain.load import LoadPoint
from tuner.domain.outcome import FailureClass
from tuner.domain.trial import Cutoff, Purpose


class SpaceExhausted(Exception):
    """Every candidate that the space's rules allow was proposed; the study is done, whatever its budget."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """What was expected of a candidate before its launch.

    Attributes:
        objective: label of the objective.
        center: median of the predicted value of one launch, in the objective's unit.
        low: lower end of the 95 % interval of that launch (model and launch noise together).
        high: upper end.
    """

    objective: str
    center: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class EarlierResult:
    """What an earlier study had seen of a candidate.

    Attributes:
        study: its name.
        trial: its trial.
        gains: objective → value over that study's baseline, minus 1; empty when it failed there.
        doubt: how far such a gain may be off here (standard deviation, as a share).
        failure: how it failed there, or None.
    """

    study: str
    trial: int
    gains: Mapping[str, float]
    doubt: float
    failure: FailureClass | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a trial was proposed.

    Attributes:
        trial: trial number.
        candidate: what was proposed.
        why: one sentence.
        predictions: per objective; empty when no model existed yet (the start, or another sampler).
        failure_chance: predicted probability that the launch fails, 0–1, or None without a model.
        suspects: why it might fail: rule in words → probability that this rule is real.
        teaches: what the launch would tell, most telling first: `knob=value` → how much of the value's uncertainty
            (standard deviation, as a share of the first objective) is open before the launch.
        likely: what the space file expected: `knob=value` → the reason given there.
        hints: earlier study → how many of its launches were taken into account.
        earlier: what earlier studies had seen of this very candidate.
    """

    trial: int
    candidate: Candidate
    why: str
    predictions: tuple[Prediction, ...] = ()
    failure_chance: float | None = None
    suspects: Mapping[str, float] = field(default_factory=dict)
    teaches: Mapping[str, float] = field(default_factory=dict)
    likely: Mapping[str, str] = field(default_factory=dict)
    hints: Mapping[str, int] = field(default_factory=dict)
    earlier: tuple[EarlierResult, ...] = ()


@dataclass(frozen=True, slots=True)
class KnobImportance:
    """How much one knob moves one objective.

    Attributes:
        engine: the engine whose knob it is.
        knob: knob name.
        objective: label of the objective.
        effect: best over worst value of the knob, averaged over the other knobs, minus 1 (0.12 = 12 %).
        low: lower end of the 95 % interval of `effect`.
        high: upper end.
        best: the value with the best average.
        trials: successful launches in which the knob was active and away from its baseline value.
    """

    engine: str
    knob: str
    objective: str
    effect: float
    low: float
    high: float
    best: str
    trials: int


@dataclass(frozen=True, slots=True)
class RemainingGain:
    """What is left to win on the lead objective, as a share of the best found (0.01 = 1 %).

    Attributes:
        expected: mean over the model's beliefs.
        upper: the value that the gain stays below with probability `confidence`.
        confidence: 0–1.
    """

    expected: float
    upper: float
    confidence: float


@dataclass(frozen=True, slots=True)
class Proposal:
    """A candidate to launch.

    Attributes:
        trial: the number to tell the verdict under.
        candidate: what to launch.
        why: one sentence.
        purpose: of the launch.
        block: round of interleaved launches that it belongs to, if to any; for the loop, the search does not keep it.
    """

    trial: int
    candidate: Candidate
    why: str
    purpose: Purpose = Purpose.SEARCH
    block: int | None = None


@dataclass(frozen=True, slots=True)
class Scored:
    """The launch was measured in full.

    Attributes:
        values: one per objective, in the order of `Space.goals`, each in its own unit.
        violations: limit label → how far it is broken (`Limit.violation`); ≤ 0 keeps it.
        spread: standard error of each value within the launch, in its unit; None where unknown; () for all unknown.
        metrics: anything else worth showing on the dashboard.
        seconds: wall-clock time of the launch from start to end.
    """

    values: tuple[float, ...]
    violations: Mapping[str, float] = field(default_factory=dict)
    spread: tuple[float | None, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Infeasible:
    """The launch failed. Only a class that blames the candidate teaches the search (`FAILURES`)."""

    failure_class: FailureClass
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Partial:
    """The launch was measured in part and ended because it was clearly worse; it has not failed.

    Attributes:
        values: one per objective; None where not measured.
        reason: one sentence.
        seconds: wall-clock time of the launch.
    """

    values: tuple[float | None, ...]
    reason: str
    seconds: float = 0.0


Verdict = Scored | Infeasible | Partial


@dataclass(frozen=True, slots=True)
class Restated:
    """A measured launch as it would have been measured now, where the machine became faster or slower since.

    Attributes:
        values: one per objective, in its unit; None where not known.
        violations: as `Scored.violations`.
        doubt: how far each value may be off for that (standard deviation, as a share).
    """

    values: tuple[float | None, ...]
    violations: Mapping[str, float]
    doubt: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class PriorObservation:
    """A result of an earlier study, offered as a hint.

    Attributes:
        candidate: what was launched; knobs that the present space does not have are ignored.
        ratios: value over that study's baseline, one per objective of the present study; None where it has none.
        doubt: how far such a ratio may be off in this study (standard deviation as a share; more when the model or
            versions differ).
        failure: how it failed there, by its own fault; None when it was measured.
        trust: how much that failure counts beside one of this study, 0–1.
        seconds: how long the launch took; 0 when unknown.
        study: name of the earlier study.
        trial: its trial there.
    """

    candidate: Candidate
    ratios: tuple[float | None, ...]
    doubt: float = 0.05
    failure: FailureClass | None = None
    trust: float = 1.0
    seconds: float = 0.0
    study: str = ""
    trial: int = -1


class Search(Protocol):
    """The contract between a study's loop and the method that proposes candidates.

    One search belongs to one coordinator. Everything it knows is in its storage, so that a search opened again with the
    same name goes on where the earlier one stopped, and the same seed and history give the same proposals.
    """

    def ask(self) -> Proposal:
        """The next candidate: never one that breaks the space's rules or was proposed before, unless enqueued.

        Raises:
            SpaceExhausted: when nothing is left to propose.
        """
        ...

    def tell(self, trial: int, verdict: Verdict) -> None:
        """Report how a proposed trial ended. A value that is no positive finite number makes the trial infeasible.

        Raises:
            InternalError: when the trial is unknown or was told before, or the number of values is wrong.
        """
        ...

    def restate(self, launches: Mapping[int, Restated]) -> None:
        """See these trials so from now on, whatever they were told with.

        Takes the place of what was said before. Not kept in the storage: whoever goes on with the search says it again.
        """
        ...

    def abandon(self, trial: int) -> None:
        """Forget a proposal that was never launched; its candidate may come again."""
        ...

    def enqueue(self, candidate: Candidate, purpose: Purpose) -> None:
        """Have this candidate proposed next (after earlier ones of the queue), even if it was launched before."""
        ...

    def propose(self, candidate: Candidate, purpose: Purpose) -> Proposal:
        """This candidate at once, whatever waits in the queue, even if it was launched before.

        What it measures is told like any other trial, so that the search learns from every launch.
        """
        ...

    def rest(self, engine: str, knobs: Collection[str]) -> None:
        """These knobs do nothing in this engine, whatever the others are: leave them as the baseline has them.

        Takes the place of what was said before. Not kept in the storage: whoever goes on with the search says it again.
        """
        ...

    @property
    def pending(self) -> Mapping[int, Proposal]:
        """Trials proposed and not told yet."""
        ...

    def finalists(self, engine: str, count: int, before: int | None = None) -> Sequence[Candidate]:
        """Launched candidates that are worth confirming, by what the models expect, most wanted first.

        Not those with the best values seen: with many launches these are the luckiest ones. The baseline is never
        among them; fewer than `count` come back where fewer are worth it, and none while there is no model.

        Args:
            engine: whose.
            count: at most so many. A larger count only adds to the end of the list.
            before: look only at trials with a smaller number; None looks at all.
        """
        ...

    def importance(self) -> Sequence[KnobImportance]:
        """Which knobs matter, per objective, most important first; knobs that were never active are left out."""
        ...

    def explain(self, trial: int) -> Explanation:
        """Why a trial was proposed.

        Raises:
            StudyError: when the study has no such trial.
        """
        ...

    def cutoffs(self, trial: int, loads: Sequence[LoadPoint]) -> Sequence[Cutoff]:
        """When a pending trial, measured at some of its loads, is beaten whatever the rest will show (beyond noise).

        Args:
            trial: a proposal that was not told yet.
            loads: levels and rates in the order in which they are measured.
        """
        ...

    def remaining_gain(self, confidence: float = 0.9) -> RemainingGain | None:
        """How much better a candidate might still be; None while too little is known to say."""
        ...

"""What repeated launches prove: effects with intervals, who holds up, and which setting carries what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tuner.domain.candidate import Candidate
from tuner.domain.front import Estimate, broken_words
from tuner.domain.values import Value, counted


class Finding(StrEnum):
    """What a comparison came to; the value is how it is said."""

    FASTER = "faster"
    SLOWER = "slower"
    NO_DIFFERENCE = "no difference shown"
    NOISE = "noise hides what was asked"
    UNKNOWN = "not measured together"


@dataclass(frozen=True, slots=True)
class Effect:
    """How one configuration compares with another on one objective, over launches made in the same rounds.

    Attributes:
        objective: label.
        change: ratio of the two values minus one (0.03 = 3 % more); None when they were never measured together.
        low: lower end of the 95 % interval of `change`; None when one round or noise-free data cannot give one.
        high: upper end.
        rounds: rounds in which both were measured.
        better: probability that the true value is better, 0–1, in the objective's own direction.
        smallest: smallest change (a share) that so many launches with this noise show with 80 % power.
        finding: the comparison in words.
    """

    objective: str
    change: float | None
    low: float | None = None
    high: float | None = None
    rounds: int = 0
    better: float | None = None
    smallest: float | None = None
    finding: Finding = Finding.UNKNOWN


@dataclass(frozen=True, slots=True)
class ArmResult:
    """One configuration of a series of interleaved launches.

    Attributes:
        candidate: the configuration.
        trial: number by which the study names it, which may be one of the search.
        trials: numbers of the trials that launched it in this series.
        changes: knob → (baseline's value, own value).
        launches: how many of them were measured.
        failures: how many failed for good.
        values: per objective, over the launches of this series; None where none was measured.
        effects: per objective, against the baseline of its own engine; empty for that baseline itself.
        broken: limits that the median launch breaks → by how much, as a share of the bound.
        yields_to: trial of a simpler configuration from which this one does not separate, or None.
    """

    candidate: Candidate
    trial: int
    trials: tuple[int, ...]
    changes: Mapping[str, tuple[Value, Value]]
    launches: int
    failures: int
    values: tuple[Estimate | None, ...]
    effects: tuple[Effect, ...] = ()
    broken: Mapping[str, float] = field(default_factory=dict)
    yields_to: int | None = None

    @property
    def is_baseline(self) -> bool:
        """Whether it is its engine's baseline."""
        return not self.changes

    @property
    def holds(self) -> bool:
        """Whether it can be recommended: launched without failure, within every limit, no simpler one as good."""
        return self.launches > 0 and not self.failures and not self.broken and self.yields_to is None

    @property
    def objections(self) -> tuple[str, ...]:
        """Why it cannot be recommended, in words; empty where nothing speaks against it."""
        said = []
        if self.failures:
            said.append(f"failed in {self.failures} of {counted(len(self.trials), 'launch')}")
        if self.broken:
            said.append(f"breaks {broken_words(self.broken)}")
        if self.yields_to is not None:
            said.append(f"not better than the simpler trial {self.yields_to}")
        return tuple(said)

    @property
    def gains(self) -> bool:
        """Whether it is shown to be better than the baseline somewhere."""
        return any(effect.finding is Finding.FASTER for effect in self.effects)


@dataclass(frozen=True, slots=True)
class EngineComparison:
    """The confirmed best of one engine against that of the study's first engine.

    Attributes:
        best: of this engine.
        effects: per objective, against `reference`; empty for the reference itself.
        reference: engine compared with.
    """

    best: ArmResult
    effects: tuple[Effect, ...]
    reference: str


@dataclass(frozen=True, slots=True)
class Confirmation:
    """What a series of interleaved launches says about the baseline and the finalists.

    Attributes:
        arms: baselines first, then finalists in the order in which they were first launched.
        rounds: complete or not, that were begun.
        chosen: the recommended configuration: the baseline where no finalist is shown to be better.
        engines: side by side, in the space's order; empty with one engine.
        asked: the difference that matters, as a share.
        simulated: whether the numbers are a model's.
    """

    arms: tuple[ArmResult, ...]
    rounds: int
    chosen: ArmResult
    engines: tuple[EngineComparison, ...]
    asked: float
    simulated: bool

    def arm_of(self, candidate: Candidate) -> ArmResult | None:
        """What its launches say about a configuration; None when none of them was measured."""
        return next((a for a in self.arms if a.candidate.fingerprint == candidate.fingerprint and a.launches), None)


class AblationKind(StrEnum):
    """How a setting was looked at."""

    LEAVE_ONE_OUT = "leave one out"
    ADD_ONE_IN = "add one in"


@dataclass(frozen=True, slots=True)
class AblationRow:
    """One named setting: what the configuration with it has over the same one without it.

    Attributes:
        setting: knob name, or several joined by ` + ` where one switches the others on or off.
        values: knob → (value without, value with).
        kind: from the winner down, or from the baseline up.
        without: configuration without the setting; None when there is none that can be launched.
        with_it: the same one with it; they differ in nothing but `values`.
        effects: per objective, of adding the setting.
        kept: whether the minimal configuration has it.
        note: why it was not launched, or what the running server said about it.
    """

    setting: str
    values: Mapping[str, tuple[Value, Value]]
    kind: AblationKind
    without: Candidate | None
    with_it: Candidate
    effects: tuple[Effect, ...]
    kept: bool
    note: str = ""

    @property
    def words(self) -> str:
        """What became of the setting, and why."""
        if self.note:
            return f"{'kept' if self.kept else 'dropped'}: {self.note}"
        if self.kept:
            return "kept"
        if all(e.change is None for e in self.effects):
            return "not measured yet"
        if worse := [e.objective for e in self.effects if e.finding is Finding.SLOWER]:
            return f"dropped: {', '.join(worse)} worse with it"
        if hidden := [
            f"{e.smallest:.1%} in {e.objective}"
            for e in self.effects
            if e.finding is Finding.NOISE and e.smallest is not None
        ]:
            return f"dropped: nothing shown, but noise hides less than {' and '.join(hidden)}"
        return "dropped: no measurable effect"


@dataclass(frozen=True, slots=True)
class Ablation:
    """Which settings carry the gain from the baseline to the winner.

    Attributes:
        baseline: where it starts.
        winner: where it ends.
        total: per objective, the winner against the baseline.
        rows: leave-one-out rows in the space's order, then add-one-in rows along the path.
        minimal: the winner without the settings that have no measurable effect.
        minimal_effects: per objective, the minimal configuration against the winner; empty when they are the same.
        rounds: rounds of launches that were begun.
        complete: whether every configuration had its launches.
        simulated: whether the numbers are a model's.
    """

    baseline: Candidate
    winner: Candidate
    total: tuple[Effect, ...]
    rows: tuple[AblationRow, ...]
    minimal: Candidate
    minimal_effects: tuple[Effect, ...]
    rounds: int
    complete: bool
    simulated: bool

    @property
    def is_undecided(self) -> bool:
        """Whether noise hides if the minimal configuration is as good as the winner; more rounds can say."""
        return any(effect.finding in (Finding.NOISE, Finding.UNKNOWN) for effect in self.minimal_effects)

"""What may change, what stays fixed, and what is wanted.

These models are what a user writes in a space file (`search_spaces/*.yaml`). They refuse unknown keys; `tuner.spec`
reads the file, adds positions to every problem and checks flags and values against the engine's catalogue.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Annotated, Self

from pydantic import BaseModel, Field, model_validator
from pydantic_core import PydanticCustomError

from tuner.domain.conditions import Condition, parse_condition
from tuner.domain.knob import ConditionText, EnvName, FlagName, Knob, KnobName
from tuner.domain.measurement import Metric
from tuner.domain.numbers import NUMBER, WHOLE
from tuner.domain.output import OutputCheck
from tuner.domain.values import (
    MAX_GPUS,
    MAX_LAUNCHES,
    MAX_NAME,
    MAX_SECONDS,
    MAX_TRIALS,
    Assignment,
    FlagValue,
    Scalar,
    Value,
    readable,
)
from tuner.domain.workload import Workload
from tuner.domain.written import FILE_MODEL, WrittenAt

MISPLACED = "misplaced"
"""Type of the validation error whose context lists `faults`: pairs of path and message below the space."""


class Rule(BaseModel):
    """A combination that must not be launched: `forbid: condition`, `because: reason`.

    Attributes:
        forbid: condition on knobs; where it holds, nothing is launched.
        because: the reason, for people.
    """

    model_config = FILE_MODEL

    forbid: ConditionText
    because: str = ""

    @cached_property
    def condition(self) -> Condition:
        """`forbid`, parsed."""
        return parse_condition(self.forbid)


class Baseline(BaseModel):
    """The user's present server: a full launch command as text, or knob values, or nothing (engine defaults).

    Attributes:
        command: shell line, `docker run`, compose or Kubernetes file as text; program, flags and environment are taken.
        set: knob → value; a knob that is not named has its `default`.
    """

    model_config = FILE_MODEL

    command: str | None = None
    set: Mapping[KnobName, Value] = {}

    @model_validator(mode="after")
    def _one(self) -> Self:
        if self.command is not None and self.set:
            raise ValueError("give command or set, not both")
        return self


class EngineSpace(BaseModel):
    """One engine of a space: how it is started and what of it may change.

    Attributes:
        version: engine version whose flag catalogue applies; by default the newest known one.
        command: program that replaces the launcher's default, e.g. an interpreter of another environment.
        flags: flags that every launch gets; a switch is `on`, a list gives several words.
        env: variables that every launch gets.
        baseline: the present server, with which everything is compared.
        knobs: knobs of this engine only.
        rules: combinations of this engine that must not be launched.
    """

    model_config = FILE_MODEL

    version: str | None = None
    command: tuple[str, ...] | None = None
    flags: Mapping[FlagName, FlagValue] = {}
    env: Mapping[EnvName, Scalar] = {}
    baseline: Baseline = Baseline()
    knobs: Mapping[KnobName, Knob] = {}
    rules: tuple[Rule, ...] = ()


class Hardware(BaseModel):
    """The machine that the space is meant for.

    Attributes:
        gpus: GPUs of a launch; 0 for an engine on the CPU.
        compute_capability: as `"9.0"`; a machine of another one is refused.
        gpu_name: which GPUs those are, for people.
    """

    model_config = FILE_MODEL

    gpus: Annotated[int, Field(ge=0, le=MAX_GPUS), WHOLE] = 0
    compute_capability: Annotated[str, Field(pattern=r"^\d+\.\d+$")] | None = None
    gpu_name: str | None = None


class Objective(WrittenAt):
    """One thing to optimise: `{metric: output_tok_s, level: 128}` or `{metric: ttft_p99_ms, rate: 5}`.

    Attributes:
        name: what tables and the dashboard call it; by default the metric at its load.
    """

    model_config = FILE_MODEL

    metric: Metric = Metric.OUTPUT_TOK_S
    name: Annotated[str, Field(max_length=MAX_NAME)] | None = None

    @property
    def label(self) -> str:
        """Name for tables and the dashboard."""
        return self.name or self.at.label

    @property
    def maximize(self) -> bool:
        """Direction: throughputs up, latencies down."""
        return self.metric.higher_is_better

    @property
    def words(self) -> str:
        """What is optimised: `output token throughput at C=128`."""
        return self.at.words


class Limit(WrittenAt):
    """A bound that a configuration must keep: absolute, or relative to the baseline.

    `{metric: ttft_p99_ms, rate: 5, max: 500}` or `{metric: output_tok_s, level: 128, min_of_baseline: 0.97}`.

    Attributes:
        max: no more than this, in the metric's unit.
        min: no less than this.
        max_of_baseline: no more than this share of what the baseline measures.
        min_of_baseline: no less than this share of it.
    """

    model_config = FILE_MODEL

    max: Annotated[float, NUMBER] | None = None
    min: Annotated[float, NUMBER] | None = None
    max_of_baseline: Annotated[float, NUMBER] | None = None
    min_of_baseline: Annotated[float, NUMBER] | None = None

    @model_validator(mode="after")
    def _one_bound(self) -> Self:
        given = [b for b in (self.max, self.min, self.max_of_baseline, self.min_of_baseline) if b is not None]
        if len(given) != 1:
            raise ValueError("give exactly one of max, min, max_of_baseline, min_of_baseline")
        return self

    @property
    def label(self) -> str:
        """Name of the constraint."""
        bound = "max" if self.max is not None or self.max_of_baseline is not None else "min"
        return f"{self.at.label} {bound}"

    @property
    def is_relative(self) -> bool:
        """Whether the bound is a share of what the baseline measures."""
        return self.max is None and self.min is None

    @property
    def words(self) -> str:
        """The bound in words: `output token throughput at C=16 ≥ 97 % of the baseline's`."""
        upper, lower = (self.max_of_baseline, self.min_of_baseline) if self.is_relative else (self.max, self.min)
        sign, bound = ("≥", lower) if upper is None else ("≤", upper)
        assert bound is not None
        value = f"{bound * 100:g} % of the baseline's" if self.is_relative else f"{readable(bound)} {self.metric.unit}"
        return f"{self.at.words} {sign} {value}"

    def violation(self, measured: float, baseline: float | None) -> float:
        """How far a value breaks the limit, as a share of the bound; ≤ 0 keeps it.

        A limit relative to a baseline that was not measured is kept (0).
        """
        upper, lower = self.max, self.min
        if self.is_relative:
            if baseline is None:
                return 0.0
            upper = None if self.max_of_baseline is None else self.max_of_baseline * baseline
            lower = None if self.min_of_baseline is None else self.min_of_baseline * baseline
        if upper is not None:
            return (measured - upper) / abs(upper) if upper else measured
        assert lower is not None
        return (lower - measured) / abs(lower) if lower else -measured


class Budget(BaseModel):
    """When a study ends (whichever comes first), and what part of it goes to the baseline.

    Attributes:
        trials: launches in all, those of the baseline included.
        hours: wall-clock hours of one run.
        gpu_hours: GPUs × hours of all launches.
        baseline_launches: how often each engine's baseline is launched at the start, for the noise floor.
        sentinel_every: search trials between two further launches of the baseline, against drift; 0 for none.
            While the machine drifts, half as many; one comes first where a search goes on elsewhere.
        confirm_launches: how often the baseline and each finalist are launched again at the end, interleaved; they
            take at most a third of `trials`, fewer finalists and launches where that does not suffice; 0 for none.
        smallest_gain: the difference that matters, as a share; a comparison that cannot tell it says so.
        stop_below_gain: end the search once no candidate is expected to be better than the best found by this share of
            the first objective, with `stop_confidence`; by default the search goes on until the budget is used up.
        stop_confidence: probability with which that must hold.
        cut_short: a launch of the search that an earlier one beats beyond noise on every objective, whatever its last
            levels would show, is measured in part only.
        launch_timeout_s: longest start-up, whatever the phases.
        benchmark_timeout_s: longest benchmark of one launch. Time for which other processes take the CPU from the
            server does not count, up to three times as long.
    """

    model_config = FILE_MODEL

    trials: Annotated[int, Field(gt=0, le=MAX_TRIALS), WHOLE] = 40
    baseline_launches: Annotated[int, Field(gt=0, le=MAX_TRIALS), WHOLE] = 3
    sentinel_every: Annotated[int, Field(ge=0, le=MAX_TRIALS), WHOLE] = 10
    confirm_launches: Annotated[int, Field(ge=0, le=MAX_LAUNCHES), WHOLE] = 3
    smallest_gain: Annotated[float, Field(gt=0, lt=1), NUMBER] = 0.02
    hours: Annotated[float, Field(gt=0, le=MAX_SECONDS / 3600), NUMBER] | None = None
    gpu_hours: Annotated[float, Field(gt=0, le=MAX_GPUS * MAX_SECONDS / 3600), NUMBER] | None = None
    stop_below_gain: Annotated[float, Field(gt=0, lt=1), NUMBER] | None = None
    stop_confidence: Annotated[float, Field(ge=0.5, lt=1), NUMBER] = 0.9
    cut_short: bool = True
    launch_timeout_s: Annotated[float, Field(gt=0, le=MAX_SECONDS), NUMBER] = 900.0
    benchmark_timeout_s: Annotated[float, Field(gt=0, le=MAX_SECONDS), NUMBER] = 900.0


class Space(BaseModel):
    """A whole space file.

    Attributes:
        name: what studies of it are called, with the time after it, unless `--name` says otherwise.
        description: one line for `tuner space list`.
        model: folder, or name on the Hugging Face hub; `--model` replaces it.
        served_model: name that the server gives the model, where clients ask for another one than `model`.
        hardware: the machine that it is meant for.
        engines: engine → what is fixed and what may change there; several are studied side by side.
        knobs: knobs of all engines; an engine's own of the same name comes instead.
        rules: combinations of any engine that must not be launched.
        workload: what is sent to each launch.
        objectives: what is optimised, four at most; by default output tok/s alone and at the highest level.
        limits: bounds that a configuration must keep.
        budget: when the study ends.
        output_check: whether answers are still the baseline's.
        probe: measure all-reduces before the first launch.
    """

    model_config = FILE_MODEL

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=MAX_NAME)]
    description: str = ""
    model: Annotated[str, Field(min_length=1)]
    served_model: str | None = None
    hardware: Hardware = Hardware()
    engines: Annotated[Mapping[str, EngineSpace], Field(min_length=1)]
    knobs: Mapping[KnobName, Knob] = {}
    rules: tuple[Rule, ...] = ()
    workload: Workload = Workload()
    objectives: Annotated[tuple[Objective, ...], Field(max_length=4)] = ()
    limits: tuple[Limit, ...] = ()
    budget: Budget = Budget()
    output_check: OutputCheck = OutputCheck()
    probe: bool = False

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        faults: list[tuple[tuple[str | int, ...], str]] = []
        seen: set[str] = set()
        for index, objective in enumerate(self.objectives):
            faults += self._not_sent(("objectives", index), objective)
            if objective.label in seen:
                faults.append((("objectives", index), f"a second objective {objective.label}"))
            seen.add(objective.label)
        for index, limit in enumerate(self.limits):
            faults += self._not_sent(("limits", index), limit)
        if faults:
            text = "; ".join(message for _, message in faults)
            raise PydanticCustomError(MISPLACED, "{text}", {"text": text, "faults": faults})
        return self

    def _not_sent(self, place: tuple[str | int, ...], wanted: WrittenAt) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """The fault of asking for a load that the workload does not send."""
        if wanted.load in self.workload.loads:
            return
        kind, sent = ("level", self.workload.levels) if wanted.rate is None else ("rate", self.workload.rates)
        known = ", ".join(f"{one:.12g}" for one in sent)
        said = f"is not among the workload's {kind}s {known}" if known else f"is not sent: the workload has no {kind}s"
        yield (*place, kind), f"{kind} {wanted.level or wanted.rate:.12g} {said} (add it to workload.{kind}s)"

    @cached_property
    def goals(self) -> tuple[Objective, ...]:
        """The objectives; by default output tok/s alone and at the highest level."""
        if self.objectives:
            return self.objectives
        low, high = self.workload.levels[0], self.workload.levels[-1]
        named = {low: "single_stream", high: "throughput"}
        return tuple(Objective(level=level, name=name) for level, name in named.items())

    def knobs_of(self, engine: str) -> Mapping[str, Knob]:
        """The shared knobs and those of one engine, in file order; the engine's own win."""
        return {**self.knobs, **self.engines[engine].knobs}

    def rules_of(self, engine: str) -> tuple[Rule, ...]:
        """The shared rules and those of one engine."""
        return (*self.rules, *self.engines[engine].rules)

    def broken_rules(self, engine: str, active: Assignment) -> Iterator[Rule]:
        """Rules that forbid an assignment (of active knobs only)."""
        named = {"engine": engine, **active}
        return (rule for rule in self.rules_of(engine) if rule.condition.holds(named))

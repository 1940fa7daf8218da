"""One setting that may change: its values, where it lands, and when it is active."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Annotated, Self, TypeVar

from pydantic import AfterValidator, BaseModel, Field, model_validator

from tuner.domain.conditions import Condition, ConditionSyntaxError, comparisons, parse_condition
from tuner.domain.numbers import NUMBER, WHOLE
from tuner.domain.values import MAX_INT, MAX_NAME, Value, same
from tuner.domain.written import FILE_MODEL

ENGINE = "engine"
"""The name by which conditions ask for the engine."""


def _not_engine(name: str) -> str:
    if name == ENGINE:
        raise ValueError(f"{ENGINE} is what conditions call the engine itself; choose another name")
    return name


KnobName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=MAX_NAME), AfterValidator(_not_engine)]
FlagName = Annotated[str, Field(pattern=r"^-{1,2}[A-Za-z][A-Za-z0-9_.-]*$")]
EnvName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
_Given = TypeVar("_Given", bound=Value)

LOG_GRID_POINTS = 12
MAX_GRID_POINTS = 256


def check_condition(text: str) -> str:
    """The text itself; ValueError, as pydantic wants it, when it is no condition."""
    try:
        parse_condition(text)
    except ConditionSyntaxError as error:
        raise ValueError(f"{error} at character {error.offset + 1} of {text!r}") from error
    return text


ConditionText = Annotated[str, AfterValidator(check_condition)]
"""A condition in the grammar of `tuner.domain.conditions`."""


class Knob(BaseModel):
    """One setting that may change: its values, where it lands, and when it is active at all.

    Exactly one of `values`, `switch`, `int`, `float` gives the values; exactly one of `flag`, `env` the place.

    Attributes:
        values: categories; `unset` leaves the setting out. A list such as `LL,LL128,Simple` is one text.
        ordered: whether `values` are steps of one scale (the search then treats neighbours as alike).
        switch: the values are off and on.
        int_range: integers of a range: `{low: 64, high: 1024, log: true}`.
        float_range: floats of a range.
        flag: engine flag, in the engine's own spelling.
        key: dotted key inside the JSON value of `flag` (`cudagraph_mode` of `--compilation-config`).
        split: the value's blank-separated words become separate arguments (`--cuda-graph-bs-decode 1 2 4`).
        inverted: for a switch whose flag turns the thing off: on leaves the flag out, off gives it.
        env: environment variable. A switch is written as 1 and 0.
        when: condition on other knobs; when it does not hold the knob is inactive and left out.
        default: the engine's own value when the setting is left out, if known: what `unset` really means,
            and where an inactive knob is held during the search.
        prior: probable values, with the reason.
        describe: one line for people.
    """

    model_config = FILE_MODEL

    values: tuple[Value, ...] | None = None
    ordered: bool = False
    switch: bool = False
    int_range: IntRange | None = Field(default=None, alias="int")
    float_range: FloatRange | None = Field(default=None, alias="float")
    flag: FlagName | None = None
    key: str | None = None
    split: bool = False
    inverted: bool = False
    env: EnvName | None = None
    when: ConditionText | None = None
    default: Value = None
    prior: Prior | None = None
    describe: str = ""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        kinds = [self.values is not None, self.switch, self.int_range is not None, self.float_range is not None]
        if sum(kinds) != 1:
            raise ValueError("give exactly one of values, switch, int, float")
        if (self.flag is None) == (self.env is None):
            raise ValueError("give exactly one of flag, env")
        if self.key is not None and self.flag is None:
            raise ValueError("key needs flag: it names a part of that flag's JSON value")
        if self.inverted and not self.switch:
            raise ValueError("inverted is for a switch only")
        if self.split and (self.flag is None or self.key is not None):
            raise ValueError("split is for a plain flag only")
        if self.values is not None:
            if not self.values:
                raise ValueError("values is empty")
            for position, value in enumerate(self.values):
                if any(same(value, earlier) for earlier in self.values[:position]):
                    raise ValueError(f"value {value!r} stands twice")
        return self

    @cached_property
    def condition(self) -> Condition | None:
        """`when`, parsed; None when the knob is always active."""
        return None if self.when is None else parse_condition(self.when)

    @cached_property
    def needs(self) -> tuple[str, ...]:
        """Names that `when` asks about."""
        if self.condition is None:
            return ()
        return tuple(dict.fromkeys(comparison.name for comparison in comparisons(self.condition)))

    @cached_property
    def numeric_range(self) -> IntRange | FloatRange | None:
        """The range of an integer or float knob."""
        return self.int_range or self.float_range

    @cached_property
    def grid(self) -> tuple[Value, ...]:
        """The knob's values as a finite list, in order; ranges are cut into their steps.

        A logarithmic range without step has at most `LOG_GRID_POINTS` points at equal ratios, both ends included.
        """
        if self.values is not None:
            return self.values
        if self.switch:
            return (False, True)
        assert self.numeric_range is not None
        points: tuple[Value, ...] = self.numeric_range.points
        return (None, *points) if self.numeric_range.unset else points

    @property
    def ordinal(self) -> bool:
        """True when neighbouring values of `grid` are alike."""
        return self.ordered or self.numeric_range is not None

    def allows(self, value: Value) -> bool:
        """Whether a value is one that this knob may take (not only one of its grid)."""
        if self.numeric_range is not None:
            if value is None:
                return self.numeric_range.unset
            return self.numeric_range.contains(value)
        return any(same(value, choice) for choice in self.grid)

    def given(self, value: _Given) -> _Given | bool:
        """What the engine is given for a value: the opposite where the flag turns the thing off."""
        return (not value) if self.inverted and value is not None else value

    def own(self, value: Value) -> Value:
        """A value that the knob allows as the knob itself has it, so that 1 and 1.0 are one configuration."""
        if self.float_range is not None and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        return next((choice for choice in self.values or () if same(choice, value)), value)

    @property
    def target(self) -> str:
        """Where the knob lands, as one text: `--flag`, `--flag:key.sub` or `NAME`."""
        if self.env is not None:
            return self.env
        return f"{self.flag}:{self.key}" if self.key is not None else str(self.flag)


class _Range(BaseModel):
    """What ranges of integers and of floats have in common.

    Attributes:
        log: values at equal ratios instead of equal distances; `low` must be above 0.
        unset: leaving the setting out is one more value.
    """

    model_config = FILE_MODEL

    log: bool = False
    unset: bool = False

    def _check(self, low: float, high: float, step: float | None) -> None:
        if low > high:
            raise ValueError(f"low {low} is above high {high}")
        if step is not None and step <= 0:
            raise ValueError(f"step {step} must be above 0")
        if self.log and step is not None:
            raise ValueError("give step or log, not both")
        if self.log and low <= 0:
            raise ValueError(f"a logarithmic range needs low above 0, not {low}")


class IntRange(_Range):
    """Integers from `low` to `high`, both included, by `step` or at equal ratios (`log`).

    Attributes:
        low: the smallest value.
        high: the largest value.
        step: distance of two values; by default 1, or more where the range would have too many values.
    """

    low: Annotated[int, Field(ge=-MAX_INT, le=MAX_INT), WHOLE]
    high: Annotated[int, Field(ge=-MAX_INT, le=MAX_INT), WHOLE]
    step: Annotated[int, Field(le=MAX_INT), WHOLE] | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        self._check(self.low, self.high, self.step)
        return self

    @cached_property
    def points(self) -> tuple[int, ...]:
        """The values, ascending; at most `MAX_GRID_POINTS` of them, spread over the range."""
        if self.log:
            return tuple(sorted({round(p) for p in _geometric(self.low, self.high)}))
        step = self.step or 1
        count = (self.high - self.low) // step + 1
        stride = -(-count // MAX_GRID_POINTS)
        return tuple(range(self.low, self.high + 1, step * stride))

    def contains(self, value: Value) -> bool:
        """Whether the integer lies in the range and on its steps."""
        if isinstance(value, bool) or not isinstance(value, int) or not self.low <= value <= self.high:
            return False
        return self.log or (value - self.low) % (self.step or 1) == 0


class FloatRange(_Range):
    """Floats from `low` to `high`, by `step` or at equal ratios (`log`).

    Attributes:
        low: the smallest value.
        high: the largest value.
        step: distance of two values; by default the range is divided into equal distances.
    """

    low: Annotated[float, NUMBER]
    high: Annotated[float, NUMBER]
    step: Annotated[float, NUMBER] | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        self._check(self.low, self.high, self.step)
        if not math.isfinite(self.high - self.low) or (self.log and not math.isfinite(self.high / self.low)):
            raise ValueError(f"the range from {self.low} to {self.high} is too wide to be divided")
        return self

    @cached_property
    def points(self) -> tuple[float, ...]:
        """The values, ascending; without step, `LOG_GRID_POINTS` of them at equal distances or ratios."""
        if self.log:
            return tuple(_geometric(self.low, self.high))
        step = self.step or (self.high - self.low) / (LOG_GRID_POINTS - 1) or 1.0
        count = int(min(MAX_GRID_POINTS - 1, (self.high - self.low) / step + 1e-9)) + 1
        # 0.1 + 2 * 0.1 is to be 0.3, and small steps are not to vanish.
        decimals = max(10, 6 - math.floor(math.log10(step)))
        return tuple(round(self.low + index * step, decimals) for index in range(count))

    def contains(self, value: Value) -> bool:
        """Whether the number lies in the range and on its steps."""
        if isinstance(value, bool) or not isinstance(value, int | float) or not self.low <= value <= self.high:
            return False
        if self.step is None:
            return True
        steps = (value - self.low) / self.step
        return abs(steps - round(steps)) < 1e-6


def _geometric(low: float, high: float) -> list[float]:
    if low == high:
        return [low]
    count = max(2, min(LOG_GRID_POINTS, math.ceil(math.log2(high / low)) + 1))
    ratio = (high / low) ** (1 / (count - 1))
    inner = [low * ratio**index for index in range(1, count - 1)]
    return [low, *inner, high]


class Prior(BaseModel):
    """What the author expects of a knob: `likely` values and the reason; trusted only while data agree.

    Attributes:
        likely: values to try first.
        reason: why, for the plan and `tuner study explain`.
    """

    model_config = FILE_MODEL

    likely: Annotated[tuple[Value, ...], Field(min_length=1)]
    reason: Annotated[str, Field(min_length=1)]


Knob.model_rebuild()

"""What is sent to a server: request shapes, load levels, and how long each is measured."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field, field_validator, model_validator

from tuner.domain.load import LoadPoint
from tuner.domain.numbers import NUMBER, WHOLE
from tuner.domain.values import MAX_COUNT, MAX_IN_FLIGHT, MAX_INT, MAX_LAUNCHES, MAX_RATE, MAX_SECONDS
from tuner.domain.written import FILE_MODEL

PositiveInt = Annotated[int, Field(gt=0, le=MAX_COUNT), WHOLE]
InFlight = Annotated[int, Field(gt=0, le=MAX_IN_FLIGHT), WHOLE]
Rate = Annotated[float, Field(gt=0, le=MAX_RATE), NUMBER]
Milliseconds = Annotated[float, Field(gt=0, le=1000 * MAX_SECONDS), NUMBER]
Seconds = Annotated[float, Field(gt=0, le=MAX_SECONDS), NUMBER]


class _Written(BaseModel):
    model_config = FILE_MODEL


class Lengths(_Written):
    """How a token count spreads around its mean (`input_tokens` or `output_tokens`).

    Attributes:
        kind: `fixed`; `uniform` over mean ± spread; `normal` or `lognormal` with that standard deviation.
        spread: as a share of the mean.
        min: no draw is below this.
        max: no draw is above this.
    """

    kind: Literal["fixed", "uniform", "normal", "lognormal"] = "fixed"
    spread: Annotated[float, Field(ge=0, lt=4), NUMBER] = 0.0
    min: PositiveInt = 1
    max: PositiveInt | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Lengths:
        if self.kind == "fixed" and self.spread:
            raise ValueError("fixed lengths have no spread: choose uniform, normal or lognormal")
        if self.kind != "fixed" and not self.spread:
            raise ValueError(f"{self.kind} lengths need a spread above 0")
        if self.kind == "uniform" and self.spread > 1:
            raise ValueError("a uniform spread is at most 1 (mean ± mean)")
        if self.max is not None and self.max < self.min:
            raise ValueError("max is below min")
        return self


class RandomShape(_Written):
    """Random tokens; no two requests share a prefix."""

    kind: Literal["random"] = "random"


class SharedPrefixShape(_Written):
    """Requests of one group start with the same tokens (a system prompt), then go on at random.

    Attributes:
        prefix_tokens: length of the shared part; it counts towards `input_tokens`.
        groups: number of different prefixes, used in turn.
    """

    kind: Literal["shared_prefix"]
    prefix_tokens: PositiveInt
    groups: PositiveInt = 1


class MultiTurnShape(_Written):
    """Conversations: each turn repeats the history and adds `input_tokens` new ones.

    Earlier answers are stood in for by random tokens of the asked length, so that every prompt is known beforehand;
    a prefix cache therefore helps up to the end of the previous prompt.

    Attributes:
        turns: requests per conversation, sent one after the other by the same slot.
    """

    kind: Literal["multi_turn"]
    turns: Annotated[int, Field(gt=1, le=100), WHOLE]


class DatasetShape(_Written):
    """Prompts from a file, drawn without repetition in a seeded order.

    `input_lengths.max` leaves longer prompts out; `output_lengths.min` and `.max` bound the lengths of answers.

    Attributes:
        kind: `sharegpt`: a JSON list of `{"conversations": [{"from": "human"|"gpt", "value": …}, …]}`;
            `jsonl`: one object a line with `prompt` (text), `token_ids` (numbers) or `messages` (chat), and optionally
            `output_tokens`.
        path: the file.
        output_from_file: take output lengths from the file where it has them, else `output_tokens`.
    """

    kind: Literal["sharegpt", "jsonl"]
    path: str
    output_from_file: bool = True


Shape = Annotated[
    RandomShape | SharedPrefixShape | MultiTurnShape | DatasetShape,
    Field(discriminator="kind"),
]


class LatencyLimits(_Written):
    """A request counts as good when it keeps every limit given here; the metric `goodput_s` counts those.

    Attributes:
        ttft_ms: longest time to the first token.
        tpot_ms: longest time per further token.
        e2e_ms: longest time to the whole answer.
    """

    ttft_ms: Milliseconds | None = None
    tpot_ms: Milliseconds | None = None
    e2e_ms: Milliseconds | None = None

    @model_validator(mode="after")
    def _one_at_least(self) -> LatencyLimits:
        if self.ttft_ms is None and self.tpot_ms is None and self.e2e_ms is None:
            raise ValueError("give at least one of ttft_ms, tpot_ms, e2e_ms")
        return self


class Workload(_Written):
    """The load of one study; the same for every trial, so that trials compare.

    Attributes:
        input_tokens: prompt length in tokens (mean, when `input_lengths` spreads it).
        output_tokens: tokens generated per request (`ignore_eos`, so equal for all unless `output_lengths` spreads it).
        input_lengths: how prompt lengths spread.
        output_lengths: how output lengths spread.
        shape: what prompts are made of.
        levels: concurrency levels of the closed loop, measured in this order on one launch.
        rates: open-loop arrival rates in requests/s, measured after the levels; times count from the scheduled
            instant of each request.
        arrivals: how open-loop arrivals are spaced; their number is the rate times `rate_seconds` either way.
        requests_per_slot: requests counted at a level C are `max(min_requests, requests_per_slot * C)`; each slot's
            ramp-up request comes on top and is not counted.
        min_requests: fewest requests at a level or rate.
        rate_seconds: scheduled length of an open-loop measurement.
        single_stream_min_requests: fewest requests at C=1.
        single_stream_max_requests: most requests at C=1, which ends as soon as the 95 % interval of decode tok/s is
            within `precision`.
        precision: half-width of that interval as a share of the centre.
        repeats: how often each level is measured on one launch.
        warmup_requests: upper bound of warm-up requests; warm-up ends earlier when speed is steady.
        api: `completions` (prompt as token ids or text) or `chat`.
        tokenizer: folder or file of the model's tokenizer; without it random token ids come from a range that nearly
            every vocabulary has.
        goodput: limits that make a request count as good.
        request_timeout_s: a request without any token for this long fails.
        stall_timeout_s: when no request of a level has had a token for this long, the level ends; never longer than
            `request_timeout_s`.
        seed: base seed; prompts differ per trial, level and repeat, so that no prefix cache can help.
    """

    input_tokens: PositiveInt = 512
    output_tokens: PositiveInt = 128
    input_lengths: Lengths = Lengths()
    output_lengths: Lengths = Lengths()
    shape: Shape = RandomShape()
    levels: Annotated[tuple[InFlight, ...], Field(json_schema_extra={"minItems": 1})] = (1, 32, 128)
    rates: tuple[Rate, ...] = ()
    arrivals: Literal["poisson", "constant"] = "poisson"
    rate_seconds: Seconds = 30.0
    requests_per_slot: PositiveInt = 2
    min_requests: PositiveInt = 8
    single_stream_min_requests: PositiveInt = 5
    single_stream_max_requests: PositiveInt = 30
    precision: Annotated[float, Field(gt=0, lt=1), NUMBER] = 0.005
    repeats: Annotated[int, Field(gt=0, le=MAX_LAUNCHES), WHOLE] = 2
    warmup_requests: PositiveInt = 12
    api: Literal["completions", "chat"] = "completions"
    tokenizer: str | None = None
    goodput: LatencyLimits | None = None
    request_timeout_s: Seconds = 120.0
    stall_timeout_s: Seconds = 60.0
    seed: Annotated[int, Field(ge=-MAX_INT, le=MAX_INT), WHOLE] = 0

    @field_validator("levels", "rates")
    @classmethod
    def _ascending(cls, loads: tuple[float, ...]) -> tuple[float, ...]:
        if list(loads) != sorted(set(loads)):
            raise ValueError("must ascend without repetition")
        return loads

    @model_validator(mode="after")
    def _consistent(self) -> Workload:
        if not self.levels:
            # Said here, for `min_length` counts only members without a fault and complains a second time.
            raise ValueError("levels is empty: give one or more, such as [1, 32]")
        if self.rates and isinstance(self.shape, MultiTurnShape):
            raise ValueError("rates are for single requests: later turns of a conversation wait for its answers")
        if self.single_stream_max_requests < self.single_stream_min_requests:
            raise ValueError("single_stream_max_requests is below single_stream_min_requests")
        if isinstance(self.shape, SharedPrefixShape) and self.shape.prefix_tokens >= self.input_tokens:
            raise ValueError("shape.prefix_tokens must be below input_tokens")
        return self

    @property
    def loads(self) -> tuple[LoadPoint, ...]:
        """Levels and rates in the order in which they are measured."""
        return (*(LoadPoint(level=level) for level in self.levels), *(LoadPoint(rate=rate) for rate in self.rates))

    @property
    def lengths_vary(self) -> bool:
        """True when requests may ask for different numbers of output tokens."""
        from_file = isinstance(self.shape, DatasetShape) and self.shape.output_from_file
        return from_file or self.output_lengths.kind != "fixed"

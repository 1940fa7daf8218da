"""Everything that tuner warns of: a closed list, each with what it means and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class WarningCode(StrEnum):
    """One kind of warning; the value is its code in JSON, in the database and in `LevelResult.warnings`."""

    # Of one load level.
    CLIENT_NEAR_LIMIT = "client_near_limit"
    PREFIX_CACHE_HIT = "prefix_cache_hit"
    QUEUED_AT_SERVER = "queued_at_server"
    BUNDLED_CHUNKS = "bundled_chunks"
    COUNTED_BY_CHUNKS = "counted_by_chunks"
    INPUT_LENGTH_APPROXIMATE = "input_length_approximate"
    RECONNECTED = "reconnected"
    PRECISION_NOT_REACHED = "precision_not_reached"
    NOT_STEADY = "not_steady"
    NOT_WARM = "not_warm"
    COMPILED_MEANWHILE = "compiled_meanwhile"
    DRIFTING = "drifting"
    OUTLIERS = "outliers"
    DATASET_REPEATED = "dataset_repeated"
    SCHEDULE_MISSED = "schedule_missed"
    FALLING_BEHIND = "falling_behind"
    # Of a launch or a whole study.
    NOISY = "noisy"
    MACHINE_DRIFTS = "machine_drifts"
    THROTTLED = "throttled"
    DIRTY_GPU = "dirty_gpu"
    OTHER_MACHINE = "other_machine"
    WARM_DIFFERS = "warm_differs"
    TOO_FEW_LAUNCHES = "too_few_launches"
    INACTIVE_KNOB = "inactive_knob"
    WINNER_AT_EDGE = "winner_at_edge"
    BASELINE_FAILED = "baseline_failed"
    OUTPUT_UNCHECKED = "output_unchecked"
    OUTPUT_UNSTABLE = "output_unstable"
    OUTPUT_UNDECIDED = "output_undecided"

    @property
    def meaning(self) -> str:
        """What was seen."""
        return _WORDS[self][0]

    @property
    def advice(self) -> str:
        """What to do about it."""
        return _WORDS[self][1]

    @property
    def words(self) -> str:
        """Meaning and advice in one line."""
        return f"{self.meaning}: {self.advice}"

    @property
    def is_remark(self) -> bool:
        """Whether it says how to read single measurements, and leaves nothing to be done before the result is used."""
        return self in _REMARKS


_REMARKS = frozenset(
    {
        WarningCode.QUEUED_AT_SERVER,
        WarningCode.BUNDLED_CHUNKS,
        WarningCode.COUNTED_BY_CHUNKS,
        WarningCode.PRECISION_NOT_REACHED,
        WarningCode.NOT_WARM,
        WarningCode.COMPILED_MEANWHILE,
        WarningCode.OUTLIERS,
    }
)
"""What they are about is part of the intervals and of the metrics that are told."""

_WORDS: dict[WarningCode, tuple[str, str]] = {
    WarningCode.CLIENT_NEAR_LIMIT: (
        "the load client was near its own limit",
        "free CPU cores, or trust lower levels only",
    ),
    WarningCode.PREFIX_CACHE_HIT: (
        "the server took part of the prompts from its cache",
        "flush it between runs, or change the seed",
    ),
    WarningCode.QUEUED_AT_SERVER: (
        "the server ran fewer requests at once than were sent",
        "read TTFT with its waiting time, or raise the server's batch limit",
    ),
    WarningCode.BUNDLED_CHUNKS: (
        "several tokens share a chunk",
        "read TPOT: times between tokens are left out",
    ),
    WarningCode.COUNTED_BY_CHUNKS: (
        "the server gives no token counts",
        "let it report usage: chunks were counted, which may be fewer",
    ),
    WarningCode.INPUT_LENGTH_APPROXIMATE: (
        "prompt lengths are only about right",
        "name the model's own tokenizer as workload.tokenizer",
    ),
    WarningCode.RECONNECTED: (
        "the server closed connections between requests",
        "raise its keep-alive time",
    ),
    WarningCode.PRECISION_NOT_REACHED: (
        "the interval is wider than asked after the most requests allowed",
        "raise workload.single_stream_max_requests, or accept a wider workload.precision",
    ),
    WarningCode.NOT_STEADY: (
        "repeats of a level differ by more than 5 %",
        "measure longer: raise workload.requests_per_slot or workload.repeats",
    ),
    WarningCode.NOT_WARM: (
        "speed was not steady yet when warm-up reached its bound",
        "raise workload.warmup_requests, or quiet the machine",
    ),
    WarningCode.COMPILED_MEANWHILE: (
        "the server compiled a kernel while requests were counted",
        "read its slowest requests with that pause; one more launch has the kernel in its cache",
    ),
    WarningCode.DRIFTING: (
        "speed changed steadily while measuring",
        "look for heat, growing memory or a neighbour, and measure again",
    ),
    WarningCode.OUTLIERS: (
        "some requests were far off",
        "look into the raw records: the interval leaves the tails out",
    ),
    WarningCode.DATASET_REPEATED: (
        "the data set was too short, so prompts were sent again",
        "give a longer one: repeated prompts may come from a cache",
    ),
    WarningCode.SCHEDULE_MISSED: (
        "requests left later than scheduled",
        "lower the rate, or free CPU cores; the delay is part of their latency",
    ),
    WarningCode.FALLING_BEHIND: (
        "answers took longer and longer while requests arrived at a rate",
        "lower the rate, or raise workload.rate_seconds: latencies there depend on how long requests arrive",
    ),
    WarningCode.NOISY: (
        "launches of the same configuration differ by more than 3 %",
        "quiet the machine, or give more launches (budget.baseline_launches, budget.confirm_launches)",
    ),
    WarningCode.MACHINE_DRIFTS: (
        "the baseline itself became faster or slower in the course of the study",
        "trust only comparisons between interleaved launches: `tuner study confirm`",
    ),
    WarningCode.THROTTLED: (
        "a GPU lowered its clock while it was measured",
        "improve cooling or lock the clocks below the limit (`nvidia-smi -lgc`), and measure again",
    ),
    WarningCode.DIRTY_GPU: (
        "GPU memory was in use before the server started",
        "end the other process (`nvidia-smi` names it) or give tuner other GPUs",
    ),
    WarningCode.OTHER_MACHINE: (
        "launches ran on different machines or software",
        "compare only launches of the same machine: confirm the candidates on one",
    ),
    WarningCode.WARM_DIFFERS: (
        "warm launches of the baseline do not measure what plain ones do, beyond noise",
        "search again with --no-warm, unless the baseline itself drifted meanwhile",
    ),
    WarningCode.TOO_FEW_LAUNCHES: (
        "a configuration on the front was launched fewer than three times, and not confirmed",
        "take it for a candidate, not for proof: `tuner study confirm --top N` launches the most promising again",
    ),
    WarningCode.INACTIVE_KNOB: (
        "a setting had no effect on the running server",
        "take it out of the space, or change what keeps it from acting",
    ),
    WarningCode.WINNER_AT_EDGE: (
        "the best value lies at the end of its range",
        "widen the range and search on",
    ),
    WarningCode.BASELINE_FAILED: (
        "the baseline could not be measured, so there is nothing to compare with",
        "make the present configuration run first; its failure is in `tuner study failures`",
    ),
    WarningCode.OUTPUT_UNCHECKED: (
        "answers were not checked",
        "set output_check.enabled: a fast setting may answer wrongly",
    ),
    WarningCode.OUTPUT_UNSTABLE: (
        "the baseline's answers differ from launch to launch, so the output check forgives much",
        "look for settings that make it indeterministic, or ask for longer and more answers",
    ),
    WarningCode.OUTPUT_UNDECIDED: (
        "the model finds its likeliest tokens equally likely, so the output check sees gross errors only",
        "use real weights instead of dummy ones, at the latest for the confirmation",
    ),
}


@dataclass(frozen=True, slots=True)
class Caution:
    """A warning about a study.

    Attributes:
        code: which.
        detail: what it is about, in numbers or names.
        trials: trials that it was seen in; empty when it is about the study as a whole.
    """

    code: WarningCode
    detail: str
    trials: tuple[int, ...] = ()

    def __str__(self) -> str:
        """`launches of the same configuration differ by more than 3 % (output_tok_s@1: 4.1%); quiet the machine, …`."""
        return f"{self.code.meaning} ({self.detail}); {self.code.advice}"

"""Domain records for tests: a small study and what a worker reports about it."""

from __future__ import annotations

from tuner.domain.candidate import Candidate
from tuner.domain.launch import LaunchPlan
from tuner.domain.load import LoadPoint
from tuner.domain.measurement import LevelResult, Measured, Measurement, Metric, SpreadKind
from tuner.domain.outcome import Failure, FailureClass, Phase
from tuner.domain.space import Space
from tuner.domain.study import AttemptRecord, AttemptState, StudyRecord
from tuner.domain.trial import Activity, KnobActivity, Purpose, TrialReport

SPACE_TEXT = "name: tiny\nmodel: /models/tiny\nengines: {simulated: {}}\n"


def rates_space() -> Space:
    """Levels and rates of the same numbers; one absolute limit, one that is a share of the baseline's."""
    return Space.model_validate(
        {
            "name": "toy",
            "model": "m",
            "engines": {"simulated": {}},
            "workload": {"levels": [1, 5], "rates": [1, 5]},
            "objectives": [{"level": 1}, {"metric": "ttft_p99_ms", "rate": 5}],
            "limits": [
                {"metric": "ttft_p99_ms", "rate": 5, "max": 500},
                {"metric": "ttft_p99_ms", "rate": 1, "max_of_baseline": 1.5},
            ],
        }
    )


def space() -> Space:
    """A space with every kind of knob."""
    return Space.model_validate(
        {
            "name": "tiny",
            "model": "/models/tiny",
            "engines": {"simulated": {"flags": {"--tp-size": 8}, "env": {"NCCL_DEBUG": "INFO"}}},
            "knobs": {
                "nccl_proto": {
                    "values": ["LL", "LL128", None],
                    "env": "NCCL_PROTO",
                    "when": "custom_all_reduce == off",
                },
                "custom_all_reduce": {"switch": True, "flag": "--disable-custom-all-reduce", "inverted": True},
                "decode_steps": {"int": {"low": 1, "high": 16, "log": True}, "flag": "--num-continuous-decode-steps"},
                "mem_fraction": {"float": {"low": 0.5, "high": 0.9, "step": 0.1}, "flag": "--mem-fraction-static"},
            },
            "rules": [{"forbid": "decode_steps > 8 and mem_fraction > 0.8", "because": "runs out of memory"}],
            "workload": {"levels": [1, 128]},
            "limits": [{"metric": "ttft_p99_ms", "level": 128, "max": 4000}],
        }
    )


def study(name: str = "night", created_at: float = 1000.25) -> StudyRecord:
    """A study that was just made."""
    return StudyRecord(
        name=name,
        space=space(),
        space_text=SPACE_TEXT,
        space_hash="ab" * 32,
        sampler="tpe",
        seed=2**40 + 1,
        simulated=True,
        tuner_version="0.1.0",
        created_at=created_at,
        overrides={"trials": "12"},
    )


def candidate(**values: bool | int | float | str | None) -> Candidate:
    """A candidate of the simulated engine."""
    return Candidate("simulated", values or {"custom_all_reduce": False, "nccl_proto": "LL", "decode_steps": 4})


def plan(**changes: object) -> LaunchPlan:
    """How a server was started."""
    fields: dict[str, object] = {
        "engine": "simulated",
        "argv": ("python", "-m", "server", "--json", '{"a": "b c"}', "--num-continuous-decode-steps", "4"),
        "env": {"NCCL_PROTO": "LL", "EMPTY": ""},
        "host": "127.0.0.1",
        "port": 31000,
        "pass_env": ("HF_TOKEN", "PATH"),
        "unset_env": ("http_proxy",),
        "extra_ports": (31001,),
        "gpus": (0, 1),
        "simulated": True,
        "model": "/models/tiny",
        "served_model": "tiny",
        "engine_version": "1.0",
    }
    return LaunchPlan(**(fields | changes))  # type: ignore[arg-type]


def level(concurrency: int, tok_s: float, half_width: float = 1.0) -> LevelResult:
    """One valid load level with a throughput and a latency."""
    return LevelResult(
        load=LoadPoint(level=concurrency),
        asked=16,
        completed=16,
        errors={},
        measurements=(
            Measurement(
                Metric.OUTPUT_TOK_S,
                LoadPoint(level=concurrency),
                repeats=(tok_s - 0.5, tok_s + 0.5),
                center=tok_s,
                low=tok_s - half_width,
                high=tok_s + half_width,
                spread_kind=SpreadKind.WITHIN_LAUNCH,
                samples=32,
            ),
            Measurement(Metric.TTFT_P99_MS, LoadPoint(level=concurrency), repeats=(41.5,), center=41.5, samples=16),
        ),
        duration_s=12.5,
        client_cpu_share=0.25,
        client_lag_ms=0.1 + 0.2,
        warnings=("client_busy",),
    )


def at_rate(rate: float, ttft_ms: float, tok_s: float = 640.0) -> LevelResult:
    """One valid rate of arrivals with a throughput and a latency."""
    load = LoadPoint(rate=rate)
    return LevelResult(
        load=load,
        asked=60,
        completed=60,
        errors={},
        measurements=(
            Measurement(Metric.OUTPUT_TOK_S, load, repeats=(tok_s,), center=tok_s, samples=60),
            Measurement(Metric.TTFT_P99_MS, load, repeats=(ttft_ms,), center=ttft_ms, samples=60),
        ),
        duration_s=30.0,
        in_flight=9,
    )


def measured_report(single: float = 90.0, loaded: float = 2320.0, **changes: object) -> TrialReport:
    """A launch that was measured at two levels."""
    fields: dict[str, object] = {
        "outcome": Measured((level(1, single), level(128, loaded, 12.0)), simulated=True, warnings=("few_repeats",)),
        "plan": plan(),
        "phase_seconds": {Phase.SPAWN: 0.25, Phase.SERVING: 1 / 3},
        "activity": (KnobActivity("nccl_proto", Activity.INACTIVE, "custom all-reduce is on"),),
        "versions": {"engine": "1.0", "driver": "590.44"},
        "machine": {"gpu": "none", "cpu": "two cores"},
        "artifacts": {"server_log": "server.log", "launch_script": "launch.sh"},
        "started_at": 1100.125,
        "finished_at": 1160.5,
        "notes": ("ready after 3.2 s",),
    }
    return TrialReport(**(fields | changes))  # type: ignore[arg-type]


def failed_report(**changes: object) -> TrialReport:
    """A launch that failed before the server was up."""
    outcome = Failure(
        FailureClass.NCCL_CONFIG,
        Phase.NCCL_INIT,
        evidence=("NCCL WARN no algorithm/protocol available",),
        blames=("nccl_proto", "nccl_algo"),
        detail="NCCL rejects LL with Tree",
        exit_code=-6,
    )
    fields: dict[str, object] = {"outcome": outcome, "plan": None, "started_at": 1200.0, "finished_at": 1201.0}
    return TrialReport(**(fields | changes))  # type: ignore[arg-type]


def attempt(trial: int, candidate: Candidate, report: TrialReport | None = None, **changes: object) -> AttemptRecord:
    """A launch that was read from the store; its state follows from what came of it."""
    state = AttemptState.RUNNING
    if report is not None:
        state = AttemptState.FAILED if isinstance(report.outcome, Failure) else AttemptState.MEASURED
    known: dict[str, object] = {
        "id": trial + 1,
        "study": "night",
        "trial": trial,
        "attempt": 1,
        "purpose": Purpose.SEARCH,
        "candidate": candidate,
        "state": state,
        "run_dir": "",
        "lease_owner": "",
        "lease_expires_at": 0,
        "started_at": 60.0 * trial,
        "report": report,
    }
    return AttemptRecord(**{**known, **changes})  # type: ignore[arg-type]

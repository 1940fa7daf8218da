"""Whole launches of the simulated engine, without a study around them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tuner.domain.candidate import Candidate
from tuner.domain.output import OutputReference
from tuner.domain.space import Space
from tuner.domain.trial import Purpose, TrialReport, TrialRequest
from tuner.domain.values import Value
from tuner.trial.launched import Notify
from tuner.trial.runner import run_trial

KV_TYPES = ["auto", "fp8_e4m3", "fp8_e5m2", "fp4-fast"]


def space(flags: Mapping[str, str] | None = None, **changes: object) -> Space:
    """One knob, the type of the KV cache, of which one value is fast and wrong."""
    return Space.model_validate(
        {
            "name": "trap",
            "model": "m",
            "engines": {"simulated": {"flags": {"--flavor": "sglang", "--time-scale": 100, **(flags or {})}}},
            "knobs": {"kv": {"values": KV_TYPES, "flag": "--kv-cache-dtype", "default": "auto"}},
            "workload": {"input_tokens": 128, "output_tokens": 16, "levels": [1, 8], "repeats": 1},
            "budget": {"launch_timeout_s": 60, "benchmark_timeout_s": 60},
            **changes,
        }
    )


def run(
    run_dir: Path,
    values: Mapping[str, Value] | None = None,
    *,
    purpose: Purpose = Purpose.SEARCH,
    flags: Mapping[str, str] | None = None,
    reference: OutputReference | None = None,
    gpus: tuple[int, ...] = (),
    gpu_use: Mapping[str, Mapping[int, int]] | None = None,
    notify: Notify = lambda event: None,
    **changes: object,
) -> TrialReport:
    """Launch, check, measure and tear down one configuration; `changes` go into the space."""
    whole = space(flags, **changes)
    candidate = Candidate.of(whole, "simulated", {"kv": "auto", **(values or {})})
    request = TrialRequest(
        study="trap",
        trial=0,
        attempt=1,
        purpose=purpose,
        candidate=candidate,
        space=whole,
        workload=whole.workload,
        run_dir=str(run_dir),
        seed=1,
        reference=reference,
        gpu_use=gpu_use or {},
    )
    return run_trial(request, gpus=gpus, notify=notify, cancelled=lambda: False)

"""A study with everything that a report can show, made up but consistent: no launch stands behind it."""

from __future__ import annotations

from dataclasses import replace

from support import records

from tuner.domain.candidate import Candidate
from tuner.domain.front import Estimate
from tuner.domain.measurement import Measured, Measurement, Metric, SpreadKind
from tuner.domain.output import Agreement, OutputReport, TaskScore
from tuner.domain.proof import Ablation, AblationKind, AblationRow, ArmResult, Confirmation, Effect, Finding
from tuner.domain.space import Space
from tuner.domain.study import AttemptRecord, StudyRecord
from tuner.domain.trial import Activity, KnobActivity, Purpose, TrialReport
from tuner.domain.warnings import Caution, WarningCode
from tuner.export.report import Findings

SPACE = Space.model_validate(
    {
        "name": "night",
        "model": "moonshotai/Kimi-K2.5",
        "engines": {"simulated": {}},
        "knobs": {
            "nccl_proto": {"values": [None, "LL"], "env": "NCCL_PROTO"},
            "decode_steps": {"int": {"low": 1, "high": 8}, "flag": "--num-continuous-decode-steps"},
            "trace_dir": {"values": [None, "/tmp/<b>a|b</b>"], "flag": "--spec-trace-dir"},
        },
        "workload": {"levels": [1, 32, 128]},
    }
)
BASE = Candidate("simulated", {"nccl_proto": None, "decode_steps": 1, "trace_dir": None})
WINNER = Candidate("simulated", {"nccl_proto": "LL", "decode_steps": 4, "trace_dir": None})
FULL = Candidate("simulated", {"nccl_proto": "LL", "decode_steps": 4, "trace_dir": "/tmp/<b>a|b</b>"})
OTHER = Candidate("simulated", {"nccl_proto": None, "decode_steps": 2, "trace_dir": None})
MACHINE = {
    "hostname": "node-1",
    "cpu": "AMD EPYC 9575F",
    "gpus": "NVIDIA H200, NVIDIA H200",
    "driver": "580.95.05",
    "cuda": "13.0",
    "nccl": "2.28.9 (/opt/venv/lib/libnccl.so.2)",
    "gpu_clock_mhz": "1980 (1755–1980)",
    "gpu_temperature_c": "61 (44–66)",
    "gpu_power_w": "512 (210–698)",
    "gpu_slowed_by": "power_cap 12%",
    "gpu_used_before_mib": "4, 4",
}


def _report(single: float, loaded: float, share: float, *, simulated: bool) -> TrialReport:
    speeds = {1: single, 32: (single + loaded) / 2.5, 128: loaded}
    levels = []
    for concurrency, speed in speeds.items():
        level = records.level(concurrency, speed, speed / 100)
        times = {Metric.TTFT_P50_MS: 40.0 + concurrency, Metric.TPOT_P50_MS: 1000 * concurrency / speed}
        more = tuple(
            Measurement(metric, level.load, (value,), value, value * 0.97, value * 1.03, SpreadKind.WITHIN_LAUNCH, 32)
            for metric, value in times.items()
        )
        levels.append(replace(level, measurements=(*level.measurements, *more), warnings=("outliers",)))
    report: TrialReport = records.measured_report(
        outcome=Measured(tuple(levels), simulated=simulated),
        machine=MACHINE,
        activity=(
            KnobActivity("nccl_proto", Activity.ACTIVE),
            KnobActivity("trace_dir", Activity.INACTIVE, "nothing reads this flag"),
        ),
        output=OutputReport(
            Agreement(share, 0.02, 256), Agreement(share - 0.02, 0.03, 2048), 0.8, 0.25, task=TaskScore(19, 20)
        ),
    )
    return report


def _attempt(
    number: int, candidate: Candidate, report: TrialReport, purpose: Purpose, block: int | None
) -> AttemptRecord:
    return records.attempt(
        number,
        candidate,
        report,
        purpose=purpose,
        block=block,
        run_dir=f"/runs/night/trial-{number:04d}/attempt-1",
        started_at=1000.0 + 60 * number,
        finished_at=1050.0 + 60 * number,
        told=True,
    )


def attempts(*, simulated: bool = True) -> list[AttemptRecord]:
    """Baseline, three others and a failure, then three rounds of baseline and winner."""

    def measured(single: float, loaded: float, share: float = 1.0) -> TrialReport:
        return _report(single, loaded, share, simulated=simulated)

    plan: list[tuple[Candidate, TrialReport, Purpose, int | None]] = [
        (BASE, measured(63.5, 2370.0), Purpose.BASELINE, None),
        (BASE, measured(63.9, 2362.0), Purpose.BASELINE, None),
        (FULL, measured(90.4, 2320.0, 0.97), Purpose.SEARCH, None),
        (OTHER, measured(66.0, 2290.0), Purpose.SEARCH, None),
        (WINNER, records.failed_report(), Purpose.SEARCH, None),
        (WINNER, measured(90.0, 2324.0, 0.97), Purpose.SEARCH, None),
    ]
    for block in (1, 2, 3):
        plan.append((BASE, measured(63.4 + block / 10, 2371.0 - block), Purpose.CONFIRM, block))
        plan.append((WINNER, measured(89.8 + block / 10, 2320.0 + block, 0.97), Purpose.CONFIRM, block))
    return [_attempt(number, *rest) for number, rest in enumerate(plan)]


def _effects(single: float, loaded: float) -> tuple[Effect, ...]:
    def effect(name: str, change: float) -> Effect:
        beyond = abs(change) > 0.01
        finding = (Finding.FASTER if change > 0 else Finding.SLOWER) if beyond else Finding.NO_DIFFERENCE
        return Effect(name, change, change - 0.01, change + 0.01, 3, 0.999 if change > 0 else 0.001, 0.015, finding)

    return effect("single_stream", single), effect("throughput", loaded)


def confirmation() -> Confirmation:
    values = (Estimate(63.6, 63.2, 64.0, 3), Estimate(2369.0, 2362.0, 2376.0, 3))
    base = ArmResult(BASE, 0, (6, 8, 10), {}, 3, 0, values)
    faster = (Estimate(90.0, 89.5, 90.5, 3), Estimate(2322.0, 2315.0, 2329.0, 3))
    winner = ArmResult(WINNER, 5, (7, 9, 11), WINNER.differs_from(BASE), 3, 0, faster, _effects(0.415, -0.02))
    return Confirmation((base, winner), 3, winner, (), 0.02, simulated=True)


def ablation() -> Ablation:
    def row(knob: str, kind: AblationKind, effects: tuple[Effect, ...], note: str = "") -> AblationRow:
        values = {knob: (BASE.values[knob], FULL.values[knob])}
        return AblationRow(knob, values, kind, BASE, FULL, effects, kept=not note, note=note)

    rows = (
        row("nccl_proto", AblationKind.LEAVE_ONE_OUT, _effects(0.31, -0.022)),
        row("decode_steps", AblationKind.LEAVE_ONE_OUT, _effects(0.08, 0.004)),
        row("trace_dir", AblationKind.LEAVE_ONE_OUT, _effects(0.0, 0.001), "no measurable effect"),
        row("nccl_proto", AblationKind.ADD_ONE_IN, _effects(0.29, -0.02)),
    )
    return Ablation(BASE, FULL, _effects(0.415, -0.02), rows, WINNER, _effects(-0.001, 0.0), 6, True, True)


def findings(*, simulated: bool = True) -> Findings:
    """The study `night` with warnings, a confirmation and an ablation."""
    study: StudyRecord = replace(records.study(), space=SPACE, simulated=simulated)
    cautions = (
        Caution(WarningCode.WINNER_AT_EDGE, "decode_steps=8", (2,)),
        Caution(WarningCode.OUTLIERS, "C=1 in 3 of 12 launches", tuple(range(12))),
    )
    return Findings(study, attempts(simulated=simulated), cautions, confirmation(), ablation())

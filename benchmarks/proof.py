"""Does what `tuner` proves hold? Whole studies where the truth is known.

    python -m benchmarks.proof [--studies 60] [--null 60] [--served 3] [--seed 0]

Three kinds, told apart in the output:

* modelled studies: search, confirmation and ablation of the product itself over launches drawn from the simulated
  engine's performance model and noise, without server processes. Machines differ in noise and heat up by up to 2 %.
* null studies: the same, but no knob does anything, so that every claimed gain is false.
* served studies: real server processes of the simulated engine under real load, with settings that the engine
  accepts and ignores, and a KV format that is 30 % faster and answers wrongly.

The last line of output is one JSON object: `studies` (of all kinds), `coverage` of the confirmation's 95 % intervals,
`false_gain` (null studies that chose anything but the baseline), `ablation_within` (share of ablation rows whose
interval holds the true contribution), `inert_reported` (share of ignored settings in served launches that are reported
inactive), `wrong_output_chosen` (served studies that chose a configuration with wrong answers).
"""

from __future__ import annotations

import argparse
import json
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # one study per core; BLAS threads would only fight

import random
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from scipy.stats import beta

from benchmarks.command_line import end_with
from benchmarks.modelled import DEAD_KNOBS, LIVE_KNOBS, Machine, ModelledStudy, modelled_study, space_of
from tuner.domain.candidate import Candidate
from tuner.domain.outcome import Failure, FailureClass
from tuner.domain.proof import Effect
from tuner.domain.trial import Activity, Purpose
from tuner.study.ablate import AblationPlan
from tuner.study.confirm import confirmation_of

TRIALS = 36
"""A third of them makes three rounds of the baseline and three finalists."""

ABLATION_ROUNDS = 3
_SERVED_SPACE = """
name: served
model: any/model
engines: {simulated: {flags: {--flavor: sglang, --time-scale: 40}, env: {NCCL_PROTO: LL}}}
knobs:
  decode_steps: {values: [1, 4], ordered: true, flag: --num-continuous-decode-steps, default: 1}
  ignored: {switch: true, flag: --triton-attention-reduce-in-fp32}
  buffer: {values: [null, 8388608], env: NCCL_BUFFSIZE}
  kv_format: {values: [auto, fp4-fast], flag: --kv-cache-dtype, default: auto}
workload: {input_tokens: 64, output_tokens: 64, levels: [1, 16], repeats: 1}
budget: {trials: 14, baseline_launches: 2, confirm_launches: 2, launch_timeout_s: 60, benchmark_timeout_s: 90}
"""
WRONG = "fp4-fast"
INERT = {"ignored": True, "buffer": 8388608}
"""Nothing reads the one; the other sizes buffers of the protocol Simple, and LL is used here."""


@dataclass(frozen=True)
class Tally:
    """Outcomes of one study: how many intervals held the truth, and of how many."""

    covered: int = 0
    intervals: int = 0
    within: int = 0
    rows: int = 0
    gained: bool = False
    bias: float | None = None
    dead_kept: int = 0
    dead_seen: int = 0


def modelled(seed: int, *, null: bool) -> Tally:
    """One study without servers; `null` leaves it only knobs that do nothing."""
    draw = random.Random(f"machine {seed} {null}")
    machine = Machine(seed, scale=draw.uniform(0.5, 1.5), heat=draw.uniform(0.0, 0.02), heat_s=draw.uniform(1e3, 2e4))
    knobs = DEAD_KNOBS if null else LIVE_KNOBS | DEAD_KNOBS
    with modelled_study(space_of(knobs, TRIALS), machine, "random" if null else "tuner") as study:
        study.coordinator.run()
        found = confirmation_of(study.record.space, study.attempts, {study.baseline.engine: study.baseline})
        if found is None:
            return Tally()
        pairs = [(arm.candidate, study.baseline, arm.effects) for arm in found.arms if arm.effects]
        covered, intervals = _covered(study, pairs)
        chosen = found.chosen
        if null or chosen.is_baseline:
            return Tally(covered, intervals, gained=not chosen.is_baseline)
        claimed = chosen.effects[0].change
        bias = None if claimed is None else claimed - study.true_change(chosen.candidate, study.baseline, 0)
        within, rows, kept, seen = _ablate(study, chosen.candidate)
        return Tally(covered, intervals, within, rows, True, bias, kept, seen)


def _ablate(study: ModelledStudy, winner: Candidate) -> tuple[int, int, int, int]:
    plan = AblationPlan(
        study.record, baseline=study.baseline, winner=winner, rounds=ABLATION_ROUNDS, attempts=study.attempts
    )
    study.coordinator.ablate(plan)
    found = plan.result(study.attempts)
    pairs = [(row.with_it, row.without, row.effects) for row in found.rows if row.without is not None and row.effects]
    within, rows = _covered(study, pairs)
    seen = [knob for knob in DEAD_KNOBS if knob in winner.differs_from(study.baseline)]
    kept = [knob for knob in seen if knob in found.minimal.differs_from(study.baseline)]
    return within, rows, len(kept), len(seen)


def _covered(study: ModelledStudy, pairs: Iterable[tuple[Candidate, Candidate, Sequence[Effect]]]) -> tuple[int, int]:
    """How many intervals hold the truth, and how many there are."""
    hits = total = 0
    for a, b, effects in pairs:
        for objective, effect in enumerate(effects):
            if effect.low is not None and effect.high is not None:
                total += 1
                hits += effect.low <= study.true_change(a, b, objective) <= effect.high
    return hits, total


@dataclass(frozen=True)
class Served:
    """What one study with real server processes showed.

    Attributes:
        reported: settings in launches that do nothing and are reported inactive.
        inert: settings in launches that do nothing.
        repeated: launches of the search with a flag that nothing reads, beyond the first.
        wrong_launches: launches of the format that answers wrongly.
        wrong_caught: of these, failed for wrong answers.
        wrong_chosen: whether that format was chosen, or stands on the front.
    """

    reported: int
    inert: int
    repeated: int
    wrong_launches: int
    wrong_caught: int
    wrong_chosen: bool


def served(seed: int) -> Served:
    """One study with real server processes of the simulated engine."""
    from tuner.export.standings import front_of
    from tuner.store import open_store
    from tuner.study.options import RunOptions, StartOptions
    from tuner.study.preparing import prepare_start
    from tuner.study.session import run_study
    from tuner.study.stopping import StopSwitch
    from tuner.study.summary import baselines_of

    with tempfile.TemporaryDirectory(prefix="tuner-proof-") as folder:
        file, url = Path(folder) / "served.yaml", f"sqlite:///{folder}/t.db"
        file.write_text(_SERVED_SPACE)
        os.environ["TUNER_RUNS"] = f"{folder}/runs"
        prepared = prepare_start(StartOptions(str(file), name="served", seed=seed, sampler="random"))
        with open_store(url) as store:
            store.create_study(prepared.record)
            run_study(prepared, store, RunOptions(), storage_url=url, notify=lambda event: None, stop=StopSwitch())
            attempts = store.attempts("served")
    space = prepared.record.space
    found = confirmation_of(space, attempts, baselines_of(attempts))
    chosen = [standing.candidate for standing in front_of(space, attempts).members]
    if found is not None:
        chosen.append(found.chosen.candidate)
    reports = [(a.candidate.values, a.report) for a in attempts if a.report is not None]
    said = [
        any(item.knob == knob and item.state is Activity.INACTIVE for item in report.activity)
        for values, report in reports
        for knob, value in INERT.items()
        if report.activity and values.get(knob) == value
    ]
    searched = [a for a in attempts if a.purpose is Purpose.SEARCH and a.report is not None and a.report.activity]
    wrong = [report.outcome for values, report in reports if values.get("kv_format") == WRONG]
    return Served(
        reported=sum(said),
        inert=len(said),
        repeated=max(0, sum(bool(a.candidate.values.get("ignored")) for a in searched) - 1),
        wrong_launches=len(wrong),
        wrong_caught=sum(
            isinstance(outcome, Failure) and outcome.failure_class is FailureClass.WRONG_OUTPUT for outcome in wrong
        ),
        wrong_chosen=any(candidate.values.get("kv_format") == WRONG for candidate in chosen),
    )


def interval(hits: int, total: int) -> str:
    """A share with its exact 95 % interval (Clopper & Pearson, Biometrika 26, 1934)."""
    if not total:
        return "none"
    low = beta.ppf(0.025, hits, total - hits + 1) if hits else 0.0
    high = beta.ppf(0.975, hits + 1, total - hits) if hits < total else 1.0
    return f"{hits}/{total} = {hits / total * 100:.1f} % [{low * 100:.1f}, {high * 100:.1f}]"


def share(hits: int, total: int) -> float | None:
    """A share for the JSON line; null where nothing was counted."""
    return hits / total if total else None


def _many(work: Callable[[int], Tally], seeds: Sequence[int], workers: int) -> list[Tally]:
    # Workers die of Ctrl-C; Python's own way has them say so and go on with the next study.
    with ProcessPoolExecutor(workers, initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_DFL)) as pool:
        return list(pool.map(work, seeds))


def main() -> None:
    """Run the studies and print what held."""
    parser = argparse.ArgumentParser(description="Whole studies where the truth is known: does the proof hold?")
    parser.add_argument("--studies", type=int, default=60, help="modelled studies")
    parser.add_argument("--null", type=int, default=60, help="modelled studies in which nothing does anything")
    parser.add_argument("--served", type=int, default=3, help="studies with real server processes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    began = time.monotonic()
    seeds = range(given.seed, given.seed + given.studies)
    real = _many(partial(modelled, null=False), seeds, given.workers)
    nulls = _many(partial(modelled, null=True), range(given.seed, given.seed + given.null), given.workers)
    print(f"modelled studies (no servers): {len(real)} with effects, {len(nulls)} without any, {_since(began)}")
    covered = sum(t.covered for t in (*real, *nulls))
    intervals = sum(t.intervals for t in (*real, *nulls))
    print(f"  95 % intervals of confirmations that hold the truth: {interval(covered, intervals)}")
    false_gains = sum(t.gained for t in nulls)
    print(f"  false gains where nothing does anything: {interval(false_gains, len(nulls))}")
    print(f"  studies with effects that chose a gain: {interval(sum(t.gained for t in real), len(real))}")
    biases = [t.bias for t in real if t.bias is not None]
    if biases:
        print(f"  claimed minus true gain of the choice: mean {sum(biases) / len(biases) * 100:+.2f} points")
    within, rows = sum(t.within for t in real), sum(t.rows for t in real)
    print(f"  ablation intervals that hold the true contribution: {interval(within, rows)}")
    dead, seen = sum(t.dead_kept for t in real), sum(t.dead_seen for t in real)
    print(f"  settings without effect in a winner that its ablation kept: {interval(dead, seen)}")

    began = time.monotonic()
    servers = [served(given.seed + index) for index in range(given.served)]
    print(f"served studies (real server processes, real load): {len(servers)}, {_since(began)}")
    reported, inert = sum(s.reported for s in servers), sum(s.inert for s in servers)
    print(f"  settings without effect that launches report inactive: {interval(reported, inert)}")
    print(f"  launches that the search spent on such a flag again: {sum(s.repeated for s in servers)}")
    caught, wrong = sum(s.wrong_caught for s in servers), sum(s.wrong_launches for s in servers)
    print(f"  launches with wrong answers that were found out: {interval(caught, wrong)}")
    print(
        json.dumps(
            {
                "studies": len(real) + len(nulls) + len(servers),
                "coverage": share(covered, intervals),
                "false_gain": share(false_gains, len(nulls)),
                "ablation_within": share(within, rows),
                "inert_reported": share(reported, inert),
                "wrong_output_chosen": sum(s.wrong_chosen for s in servers),
            }
        )
    )


def _since(began: float) -> str:
    return f"{time.monotonic() - began:.0f} s"


if __name__ == "__main__":
    end_with(main)

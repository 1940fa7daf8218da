"""What does a long history cost? Commands on a study of many launches beside the same ones on a short study.

    python -m benchmarks.history [--trials 10000] [--short 100]

Launches are made up: each has a baseline's worth of facts and some 40 measurements, as those of real engines have. What
is timed is the command as its user waits for it, start of Python included, and its largest memory; further what a
running study spends on reading its launches before each next one. The last line is one JSON object: how many times as
long the long study takes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.command_line import end_with
from benchmarks.modelled import DEAD_KNOBS, ENGINE, LIVE_KNOBS, SCRATCH, baseline_of, space_of
from tuner.domain.candidate import Candidate
from tuner.domain.launch import LaunchPlan
from tuner.domain.load import LoadPoint
from tuner.domain.measurement import LevelResult, Measured, Measurement, Metric, SpreadKind
from tuner.domain.outcome import Failure, FailureClass, Phase
from tuner.domain.space import Space
from tuner.domain.study import StudyRecord
from tuner.domain.trial import Activity, KnobActivity, Outcome, Purpose, TrialReport
from tuner.store import open_store

COMMANDS = (
    "list",
    "status s",
    "trials s --json",
    "front s",
    "report s --format md",
    "report s -o s.html",
    "report s --format csv",
)
_LEVELS = (1, 32, 128)
_METRICS = tuple(metric for metric in Metric if metric not in (Metric.GOODPUT_S, Metric.OUTPUT_TOK_PER_JOULE))
_FAILS = 0.05
_LAUNCH_S = 150.0
_PLAN = LaunchPlan(
    ENGINE, ("server", *(f"--flag-{n}=value-{n}" for n in range(40))), {}, "127.0.0.1", 1, simulated=True
)
_MACHINE = {f"fact_{n}": f"value {n}" for n in range(30)}


def _report(space: Space, candidate: Candidate, number: int, rng: random.Random) -> TrialReport:
    speed = rng.lognormvariate(0, 0.1)
    began = _LAUNCH_S * number
    outcome: Outcome = Measured(tuple(_level(level, speed * rng.lognormvariate(0, 0.01)) for level in _LEVELS), True)
    if number and rng.random() < _FAILS:
        outcome = Failure(FailureClass.OOM_RUNTIME, Phase.SERVING, ("out of memory",))
    return TrialReport(
        outcome,
        _PLAN,
        phase_seconds=dict.fromkeys(Phase, 1.0),
        activity=tuple(KnobActivity(knob, Activity.ACTIVE) for knob in space.knobs_of(candidate.engine)),
        versions={"engine": "1"},
        # No two launches meet the same machine: clocks and temperatures differ.
        machine={**_MACHINE, "gpu_clock_mhz": f"{rng.uniform(1500, 1980):.0f}"},
        artifacts={"server_log": "server.log", "launch_script": "launch.sh", "requests": "requests"},
        started_at=began,
        finished_at=began + _LAUNCH_S,
    )


def _level(level: int, speed: float) -> LevelResult:
    load = LoadPoint(level=level)
    rows = []
    for metric in _METRICS:
        middle = 100.0 * level * speed if metric.higher_is_better else 100.0 / speed
        repeats = (0.99 * middle, middle, 1.01 * middle)
        ends = (0.98 * middle, 1.02 * middle)
        rows.append(Measurement(metric, load, repeats, middle, *ends, SpreadKind.WITHIN_LAUNCH, 300))
    return LevelResult(load, 300, 300, {}, tuple(rows), 60.0)


def store_study(url: str, trials: int) -> None:
    """Make a database with a finished study `s`."""
    space, rng, now = space_of({**LIVE_KNOBS, **DEAD_KNOBS}, trials), random.Random(0), [0.0]
    knobs = space.knobs_of(ENGINE)
    with open_store(url, clock=lambda: now[0]) as store:
        store.create_study(StudyRecord("s", space, "", "", "tuner", 0, True, "0", 0.0))
        for number in range(trials):
            drawn = {name: rng.choice(knob.grid) for name, knob in knobs.items()}
            candidate = Candidate.of(space, ENGINE, drawn) if number else baseline_of(space)
            now[0] = _LAUNCH_S * number
            attempt = store.open_attempt(
                "s",
                trial=number,
                attempt=1,
                purpose=Purpose.SEARCH if number else Purpose.BASELINE,
                candidate=candidate,
                run_dir=f"runs/s/trial-{number:04d}/attempt-1",
                owner="benchmark",
                ttl=60,
            )
            now[0] += _LAUNCH_S
            store.finish_attempt(attempt.id, _report(space, candidate, number, rng))
            store.mark_told(attempt.id)


_RUN = """
import os, subprocess, sys, time
began = time.monotonic()
child = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
_, status, used = os.wait4(child.pid, 0)
print(os.waitstatus_to_exitcode(status), time.monotonic() - began, used.ru_maxrss / 1024)
"""
"""The kernel counts what a process had before it became the command, so it must come from a small one."""


def command_cost(folder: Path, command: str) -> tuple[float, float]:
    """Seconds and MiB of one command in a folder that holds a `tuner.db`."""
    environment = {**os.environ, "TUNER_STORAGE": "sqlite:///tuner.db"}
    program = [sys.executable, "-c", _RUN, sys.executable, "-m", "tuner.cli.main", "study", *command.split()]
    done = subprocess.run(program, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    code, seconds, mib = map(float, done.stdout.split())
    if code:
        raise SystemExit(f"tuner study {command} ended with {code:.0f}")
    return seconds, mib


def reading_cost(url: str) -> float:
    """Seconds of reading all launches again, as a running study does after each."""
    with open_store(url, create=False) as store:
        store.attempts("s")
        began = time.monotonic()
        store.attempts("s")
        return time.monotonic() - began


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--short", type=int, default=100)
    given = parser.parse_args()
    ratios = {}
    with tempfile.TemporaryDirectory(prefix="tuner-history-", dir=SCRATCH) as scratch:
        folders = {trials: Path(scratch) / str(trials) for trials in (given.short, given.trials)}
        for trials, folder in folders.items():
            folder.mkdir()
            store_study(f"sqlite:///{folder}/tuner.db", trials)
        for command in COMMANDS:
            (short_s, short_mib), (long_s, long_mib) = (command_cost(folder, command) for folder in folders.values())
            print(f"{command:24} {short_s:6.2f} s {short_mib:5.0f} MiB {long_s:8.2f} s {long_mib:5.0f} MiB", flush=True)
            ratios[command] = round(long_s / short_s, 2)
        short_s, long_s = (reading_cost(f"sqlite:///{folder}/tuner.db") for folder in folders.values())
        print(f"{'read before a launch':24} {short_s:6.3f} s {'':9} {long_s:8.3f} s")
    print(json.dumps({"trials": given.trials, "short": given.short, "times_as_long": ratios}))


if __name__ == "__main__":
    end_with(main)

"""What knowing something beforehand is worth in launches, and what it costs when it is wrong; and when to stop.

    python -m benchmarks.knowledge [--problem FILE.py|NAME] [--seeds 8] [--budget 40]

Every way runs on the same seeds. *warm*: hints of an earlier study of the same problem. *warm, other version*: the same
hints, each off by 15 % at random and doubted as such. *right prior*: two values of each knob named likely, the best one
among them; *wrong prior*: two others. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.command_line import end_with
from benchmarks.problems import protocol
from benchmarks.problems.protocol import ENGINE, FAILURES, KEEP, Problem
from benchmarks.search import WITHIN
from tuner.domain.candidate import Candidate
from tuner.domain.space import Space
from tuner.search.base import Infeasible, PriorObservation, Scored
from tuner.search.study import open_search

WAYS = ("cold", "warm", "warm, other version", "right prior", "wrong prior")
_EARLIER_LAUNCHES = 40
_STOPS = (0.01, 0.02, 0.05)
_CONFIDENCE = 0.9


@dataclass(frozen=True, slots=True)
class Run:
    """One study: launches until within 2 % of the best (infinite: never), failures, and what stopping would have done.

    Attributes:
        reached: launches until the best was reached.
        failures: launches that failed.
        stops: asked share → (launches until the search would have ended, true gain that was left then); only the ends.
        results: what was measured, as hints for another study.
    """

    reached: float
    failures: int
    stops: dict[float, tuple[int, float]]
    results: tuple[PriorObservation, ...]


def study(
    problem: Problem,
    space: Space,
    seed: int,
    budget: int,
    hints: Sequence[PriorObservation] = (),
    *,
    watch: bool = False,
) -> Run:
    """Run one study; `watch` asks after every launch what is left to win."""
    search = open_search(
        space, storage_url=None, study_name="s", baselines={ENGINE: problem.baseline}, seed=seed, hints=hints
    )
    rng = np.random.default_rng([seed, 1])
    reached, failures, best = float("inf"), 0, 0.0
    stops: dict[float, tuple[int, float]] = {}
    measured: list[tuple[Candidate, tuple[float, ...] | None, str]] = []
    start = problem.true_values(problem.baseline, {"status": "ok"})
    assert start is not None
    for number in range(1, budget + 1):
        proposal = search.ask()
        result = problem.evaluate(proposal.candidate.values, rng)
        truth = problem.true_values(proposal.candidate, result)
        values = _values(problem, result)
        measured.append((proposal.candidate, values, str(result["status"])))
        if values is None:
            failures += 1
            search.tell(proposal.trial, Infeasible(FAILURES[result["status"]], float(result["seconds"])))
        else:
            search.tell(proposal.trial, Scored(values, seconds=float(result["seconds"])))
            if truth is not None and truth[1] >= KEEP * start[1]:
                best = max(best, truth[0])
        if best >= WITHIN * problem.best_single:
            reached = min(reached, number)
        gain = search.remaining_gain(_CONFIDENCE) if watch else None
        for share in _STOPS if gain is not None and best else ():
            if share not in stops and max(gain.expected, gain.upper) < share:  # type: ignore[union-attr]
                stops[share] = number, problem.best_single / best - 1
    return Run(reached, failures, stops, tuple(_hints(problem, measured)))


def _values(problem: Problem, result: Any) -> tuple[float, ...] | None:
    return None if result["status"] != "ok" else tuple(float(result["values"][name]) for name in problem.objectives)


def _hints(
    problem: Problem, measured: Sequence[tuple[Candidate, tuple[float, ...] | None, str]]
) -> list[PriorObservation]:
    base = next(values for candidate, values, _ in measured if values and candidate == problem.baseline)
    found = []
    for candidate, values, status in measured:
        if values is None:
            none = (None,) * len(base)
            found.append(PriorObservation(candidate, none, doubt=0.03, failure=FAILURES[status], trust=0.9, study="a"))
        else:
            ratios = tuple(value / start for value, start in zip(values, base, strict=True))
            found.append(PriorObservation(candidate, ratios, doubt=0.03, study="a"))
    return found


def shaken(hints: Sequence[PriorObservation], seed: int) -> list[PriorObservation]:
    """The same hints, each objective of each off by 15 % at random: what another version may do."""
    rng = np.random.default_rng([seed, 7])
    return [
        PriorObservation(
            h.candidate,
            tuple(None if r is None else float(r * np.exp(rng.normal(0.0, 0.15))) for r in h.ratios),
            doubt=0.08,
            failure=h.failure,
            trust=0.45,
            study="a",
        )
        for h in hints
    ]


def with_prior(problem: Problem, seed: int, *, right: bool) -> Space:
    """The problem's space with two likely values for each knob: the best one and another, or two others."""
    rng = np.random.default_rng([seed, 9])
    best = _best_point(problem)
    document = problem.space.model_dump(by_alias=True)
    for name, knob in problem.space.knobs_of(ENGINE).items():
        others = [value for value in knob.grid if value != best.values.get(name)]
        chosen = [others[i] for i in rng.permutation(len(others))[: 1 if right else 2]]
        likely = [best.values[name], *chosen] if right and name in best.values else chosen
        if likely:
            document["engines"][ENGINE]["knobs"][name]["prior"] = {"likely": likely, "reason": "a benchmark"}
    return Space.model_validate(document)


def _best_point(problem: Problem) -> Candidate:
    """The best of many: hill climbing on the truth from the baseline, the second objective kept."""
    start = problem.true_values(problem.baseline, {"status": "ok"})
    assert start is not None
    best, worth = problem.baseline, start[0]
    knobs = problem.space.knobs_of(ENGINE)
    for _ in range(4):
        for name, knob in knobs.items():
            for value in knob.grid:
                tried = Candidate.of(problem.space, ENGINE, {**best.values, name: value})
                truth = problem.true_values(tried, {"status": "ok"})
                if truth is not None and truth[1] >= KEEP * start[1] and truth[0] > worth:
                    best, worth = tried, truth[0]
    return best


def compare(path: Path, seeds: int, budget: int) -> dict[str, Any]:
    """All ways on the same seeds; prints a line for each."""
    problem = protocol.load(path)
    runs: dict[str, list[Run]] = {way: [] for way in WAYS}
    for seed in range(seeds):
        earlier = study(problem, problem.space, seed + 1000, _EARLIER_LAUNCHES).results
        runs["cold"].append(study(problem, problem.space, seed, budget, watch=True))
        runs["warm"].append(study(problem, problem.space, seed, budget, earlier))
        runs["warm, other version"].append(study(problem, problem.space, seed, budget, shaken(earlier, seed)))
        runs["right prior"].append(study(problem, with_prior(problem, seed, right=True), seed, budget))
        runs["wrong prior"].append(study(problem, with_prior(problem, seed, right=False), seed, budget))
    found: dict[str, Any] = {}
    for way, group in runs.items():
        times = [run.reached for run in group]
        median, failures = statistics.median(times), statistics.fmean(run.failures for run in group)
        share = statistics.fmean(time <= budget for time in times)
        print(f"{way:20s} median {median:5.1f} launches, reached in {share:4.0%}, {failures:.1f} failures, {times}")
        found[way] = {"median": median if np.isfinite(median) else None, "reached": share, "failures": failures}
    for share in _STOPS:
        ends = [run.stops[share] for run in runs["cold"] if share in run.stops]
        held = sum(left < share for _, left in ends)
        at = f", median after {statistics.median(n for n, _ in ends):.0f} launches" if ends else ""
        left = f", left {[f'{left:.1%}' for _, left in ends]}" if ends else ""
        print(f"--stop-below {share:.0%}: ends {len(ends)} of {seeds}{at}; truly less was left in {held}{left}")
        found[f"stop {share:.0%}"] = {"ended": len(ends), "held": held}
    return found


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problem", type=protocol.file_of, default="small", help="file or name (default: small)")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--budget", type=int, default=40)
    given = parser.parse_args()
    print(json.dumps({given.problem.stem: compare(given.problem, given.seeds, given.budget)}))


if __name__ == "__main__":
    end_with(main)

"""How many launches until the best configuration? Search methods side by side on problems with known truth.

    python -m benchmarks.search [--problem FILE.py|NAME …] [--seeds 20] [--budget 80] [--methods tuner,random,…]
    python -m benchmarks.search … --save before.json      and after a change: … --against before.json

A problem file may hold a family: then each seed's study is of a problem of its own (`protocol.py`). Each study
launches the baseline first. "Reached" means that a launched candidate truly is within 2 % of the best
value of the first objective among candidates that keep 97 % of the baseline's second one. The last line of output is
one JSON object about our own sampler; everything above it is for people. Twenty seeds tell shares apart from about 30
percentage points on; a change is better judged by pairs of studies (`--against`; `search_paired.py`).
"""

from __future__ import annotations

import argparse
import json
import math
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # one study per core; BLAS threads would only fight

import statistics
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.stats import beta

from benchmarks.problems import protocol
from benchmarks.problems.blame import BrokenProblem
from benchmarks.problems.protocol import KEEP, Problem
from benchmarks.search_methods import ABSENT, METHODS, OURS
from benchmarks.search_paired import Figures, Study, comparison, read, save
from tuner.search.base import SpaceExhausted

WITHIN = 0.98
CHECKPOINTS = (20, 40)
GPUS = 4
GIVEN = ("small", "full")
_BOOTSTRAPS = 2000
_ASK_AT = 100


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch of one study."""

    status: str
    truth: tuple[float, ...] | None
    seconds: float
    ask_s: float


@dataclass(frozen=True, slots=True)
class Run:
    """One study, judged.

    Attributes:
        launches_to_98: launches until the best was reached; infinite when the budget did not suffice, NaN when the
            problem does not tell its best.
        shortfall: after each launch, the log ratio of the best first objective to the best launched one that keeps the
            others; NaN likewise.
        regret: after each launch, hypervolume that the true front has and the launched candidates lack, as a share;
            NaN when the problem does not tell that of its front.
        hangs: after each launch, launches that hung.
        hang_gpu_hours: over the whole budget.
        ask_s: seconds of each ask.
    """

    launches_to_98: float
    shortfall: Sequence[float]
    regret: Sequence[float]
    hangs: Sequence[float]
    hang_gpu_hours: float
    ask_s: Sequence[float]


def study(path: str, method: str, seed: int, budget: int) -> Run:
    """Run one study of a problem and judge it."""
    problem = protocol.load(Path(path), seed)
    search = METHODS[method](problem, seed)
    rng = np.random.default_rng([seed, 1])
    launches = []
    for _ in range(budget):
        begin = time.process_time()
        try:
            candidate = search.ask()
        except SpaceExhausted:
            break
        took = time.process_time() - begin
        result = problem.launch(candidate, rng)
        search.tell(result)
        truth = problem.true_values(candidate, result)
        launches.append(Launch(result["status"], truth, float(result["seconds"]), took))
    return judge(problem, launches, budget)


def judge(problem: Problem, launches: Sequence[Launch], budget: int) -> Run:
    """Compare what was launched with the truth.

    A study that has launched every candidate ends before its budget; what held then holds until the end.
    """
    at_baseline = problem.at_baseline()
    sign = np.where(problem.maximize, 1.0, -1.0)

    def away(launch: Launch) -> float:
        if launch.status != "ok" or launch.truth is None:
            return math.inf
        kept = all(
            value >= KEEP * base if up else value <= base / KEEP
            for value, base, up in zip(launch.truth[1:], at_baseline[1:], problem.maximize[1:], strict=True)
        )
        return float(sign[0] * np.log(problem.best_single / launch.truth[0])) if kept else math.inf

    def to_the_end(values: Sequence[float]) -> list[float]:
        return [*values, *[values[-1]] * (budget - len(values))]

    shortfall = np.minimum.accumulate([away(launch) for launch in launches])
    points = np.array(
        [x.truth if x.status == "ok" and x.truth else [np.nan] * len(sign) for x in launches], dtype=float
    )
    volumes = [hypervolume(sign * points[:n], sign * np.array(problem.reference)) for n in range(1, len(launches) + 1)]
    hung = [launch.status == "hang" for launch in launches]
    reached = next((n for n, x in enumerate(shortfall, 1) if x <= -math.log(WITHIN)), math.inf)
    return Run(
        launches_to_98=math.nan if math.isnan(problem.best_single) else reached,
        shortfall=to_the_end(shortfall.tolist()),
        regret=to_the_end([1 - volume / problem.hypervolume for volume in volumes]),
        hangs=to_the_end(np.cumsum(hung).tolist()),
        hang_gpu_hours=sum(x.seconds for x in launches if x.status == "hang") * GPUS / 3600,
        ask_s=[x.ask_s for x in launches],
    )


def hypervolume(points: np.ndarray, reference: np.ndarray) -> float:
    """Volume between a set of points (larger is better) and the reference, by slicing along the last objective."""
    points = points[(points > reference).all(axis=1)]
    if not len(points):
        return 0.0
    if points.shape[1] == 1:
        return float(points.max() - reference[0])
    levels = np.unique(points[:, -1])
    heights = np.diff(np.concatenate([[reference[-1]], levels]))
    slices = (hypervolume(points[points[:, -1] >= level, :-1], reference[:-1]) for level in levels)
    return float(sum(height * area for height, area in zip(heights, slices, strict=True)))


def share_interval(hits: int, n: int) -> tuple[float, float]:
    """Exact 95 % interval of a share (Clopper & Pearson 1934)."""
    low = beta.ppf(0.025, hits, n - hits + 1) if hits else 0.0
    high = beta.ppf(0.975, hits + 1, n - hits) if hits < n else 1.0
    return float(low), float(high)


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """95 % interval of a median from order statistics (distribution-free; infinities are allowed)."""
    ordered = sorted(values)
    n = len(ordered)
    half = 1.96 * np.sqrt(n) / 2
    return ordered[max(0, int(np.floor(n / 2 - half)))], ordered[min(n - 1, int(np.ceil(n / 2 + half)) - 1)]


def mean_interval(values: Sequence[float]) -> tuple[float, float]:
    """95 % bootstrap interval of a mean."""
    data = np.array(values, dtype=float)
    means = np.random.default_rng(0).choice(data, (_BOOTSTRAPS, len(data))).mean(axis=1)
    return float(np.quantile(means, 0.025)), float(np.quantile(means, 0.975))


def summary(runs: Sequence[Run], budget: int, long_runs: Sequence[Run]) -> dict[str, float | None]:
    """The figures of one method on one problem, as the last line of output gives them.

    Args:
        runs: studies of `budget` launches. Of fewer than 40 nothing can be said about 40: null, as is what the problem
            does not tell.
        budget: their launches.
        long_runs: studies of 100 launches or more, for the time of an ask: null where the candidates did not suffice.
    """
    times = [run.launches_to_98 for run in runs]
    judged = not any(map(math.isnan, times))
    median = statistics.median(times) if judged else math.inf
    at_40 = budget >= 40
    regret = _mean(run.regret[39] for run in runs) if at_40 else math.nan
    asks = [run.ask_s[_ASK_AT - 1] for run in long_runs if len(run.ask_s) >= _ASK_AT]
    return {
        "median_launches_to_98": None if np.isinf(median) else median,
        "reached_98": _mean(time <= budget for time in times) if judged else None,
        "single_at_40": _mean(time <= 40 for time in times) if judged and at_40 else None,
        "hv_regret_at_40": None if math.isnan(regret) else round(regret, 4),
        "hangs_at_40": _mean(run.hangs[39] for run in runs) if at_40 else None,
        "ask_s_at_100": round(statistics.median(asks), 4) if asks else None,
    }


def _mean(values: object) -> float:
    return float(np.mean(list(values)))  # type: ignore[call-overload]


def row(method: str, runs: Sequence[Run], budget: int) -> str:
    """One line of the table for people."""

    times = [run.launches_to_98 for run in runs]
    judged = not any(map(math.isnan, times))

    def share(at: int) -> str:
        if not judged:
            return "–"
        hits = sum(run.launches_to_98 <= at for run in runs)
        low, high = share_interval(hits, len(runs))
        return f"{100 * hits / len(runs):.0f} % [{100 * low:.0f}, {100 * high:.0f}]"

    def mean(values: Sequence[float], digits: int) -> str:
        if any(map(math.isnan, values)):
            return "–"
        low, high = mean_interval(values)
        return f"{np.mean(values):.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"

    low, high = median_interval(times)
    cells = [
        method,
        share(40) if budget >= 40 else "–",
        share(budget),
        f"{_count(statistics.median(times))} [{_count(low)}, {_count(high)}]" if judged else "–",
        *(mean([run.regret[n - 1] for run in runs], 2) for n in CHECKPOINTS if n <= budget),
        mean([run.hang_gpu_hours for run in runs], 1),
        f"{statistics.median(run.ask_s[-1] for run in runs):.2f}",
    ]
    return "| " + " | ".join(cells) + " |"


def _count(value: float) -> str:
    return "–" if np.isinf(value) else f"{value:g}"


def header(budget: int) -> str:
    """Head of the table for people."""
    names = [
        "method", "within 2 % at 40", f"at {budget}", "median launches",
        *(f"volume regret at {n}" for n in CHECKPOINTS if n <= budget), "hang GPU-h", "last ask, CPU-s",
    ]  # fmt: skip
    return "| " + " | ".join(names) + " |\n" + "|---" * len(names) + "|"


def _count_of(text: str) -> int:
    """A number of the command line that must be one or more."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than one")
    return number


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    told = f"problem file, or one of {', '.join(protocol.OURS)}; may be repeated (default: small and full)"
    parser.add_argument("--problem", action="append", metavar="FILE", help=told)
    parser.add_argument("--seeds", type=_count_of, default=20, help="studies per method (default 20)")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--budget", type=_count_of, default=80, help="launches per study (default 80)")
    parser.add_argument("--methods", default=",".join(METHODS), help=f"of {', '.join(METHODS)}")
    parser.add_argument("--save", type=Path, metavar="FILE", help="write each study's figures to a file")
    parser.add_argument("--against", type=Path, metavar="FILE", help="compare with such a file, seed by seed")
    parser.add_argument("--jobs", type=_count_of, default=min(2, os.cpu_count() or 1))
    chosen = parser.parse_args(arguments)
    methods = chosen.methods.split(",")
    if unknown := set(methods) - set(METHODS):
        parser.error(f"no such method: {', '.join(sorted(unknown))}; there are {', '.join(METHODS)}")
    try:
        paths = map(protocol.file_of, chosen.problem or GIVEN)
        names = {str(path): protocol.load(path).name for path in paths}
        if len(set(names.values())) < len(names):
            parser.error(f"problems of one name: {', '.join(names)}")
        _side_by_side(names, methods, chosen)
    except BrokenProblem as error:
        raise SystemExit(str(error)) from None


def _side_by_side(names: Mapping[str, str], methods: Sequence[str], chosen: argparse.Namespace) -> None:
    """Run and print what was asked for; `names` are those of the problem files."""
    seeds = range(chosen.first_seed, chosen.first_seed + chosen.seeds)
    figures, studies = {}, {}
    with ProcessPoolExecutor(chosen.jobs) as pool:
        for path, name in names.items():
            print(f"\n## {name}: {len(seeds)} studies of {chosen.budget} launches each; [95 % interval]\n")
            print(header(chosen.budget))
            for method in methods:
                if method in ABSENT:
                    print(f"| {method} | not run: {ABSENT[method]} |")
                    continue
                jobs = [pool.submit(study, path, method, seed, chosen.budget) for seed in seeds]
                runs = [job.result() for job in jobs]
                print(row(method, runs, chosen.budget), flush=True)
                for seed, run in zip(seeds, runs, strict=True):
                    figure = Figures.of(run.shortfall, run.regret, run.launches_to_98)
                    studies[Study(name, method, seed, chosen.budget)] = figure
                if method == OURS:
                    enough = chosen.budget >= _ASK_AT
                    long_runs = runs if enough else [pool.submit(study, path, OURS, seeds[0], _ASK_AT).result()]
                    figures[name] = summary(runs, chosen.budget, long_runs)
    if chosen.save:
        save(chosen.save, studies)
    if chosen.against:
        print("\n" + comparison(read(chosen.against), studies))
    print(json.dumps(figures))


if __name__ == "__main__":
    main()

"""`python -m benchmarks.faults`: run the matrix; exit code 1 when it is off its target."""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from benchmarks.faults import report, trials
from benchmarks.faults.catalogue import INJECTIONS, Injection
from benchmarks.faults.studies import STUDY_FAULTS
from benchmarks.faults.trials import Judged
from tuner.domain.measurement import Measured
from tuner.domain.outcome import Phase
from tuner.trial.deadlines import learn_limits

_GOOD_LAUNCHES = 5
_MINUTE_S = 60.0
_LAUNCH_ENDS = (Phase.SERVING, Phase.TEARDOWN)


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class Norm:
    """What launches without a fault take: limits learned from them, and what a trial may cost, in seconds."""

    limits: Mapping[Phase, float]
    bound_s: float


def learn_norm(flags: Mapping[str, str], root: Path, jobs: int) -> Norm:
    """Launch without a fault, as many at a time as there will be with faults."""
    plain = Injection("none", flags=flags)

    def one(number: int) -> Mapping[Phase, float]:
        run_dir = root / "good" / f"{len(flags)}-{number}"
        done = trials.run_once(trials.fault_space(plain, f"good-{number}"), run_dir, {})
        if not isinstance(done.outcome, Measured):
            raise SystemExit(f"a launch without a fault failed: {done.outcome}")
        return {phase: seconds for phase, seconds in done.phase_seconds.items() if phase not in _LAUNCH_ENDS}

    with ThreadPoolExecutor(jobs) as pool:
        good = list(pool.map(one, range(max(_GOOD_LAUNCHES, jobs))))
    median = statistics.median(sum(launch.values()) for launch in good)
    say(f"median good launch {median:.2f} s over {len(good)} {dict(flags) or ''}")
    return Norm(learn_limits(good), 2 * median + _MINUTE_S)


def run_matrix(chosen: Sequence[Injection], injections: int, jobs: int, root: Path) -> list[Judged]:
    """Inject every chosen fault so many times, several at a time and in turn."""
    kinds = {tuple(one.flags.items()) for one in chosen}
    norms = {kind: learn_norm(dict(kind), root, jobs) for kind in sorted(kinds)}
    judged: list[Judged] = []
    with ThreadPoolExecutor(jobs) as pool:
        orders = [(one, norms[tuple(one.flags.items())]) for _ in range(injections) for one in chosen]
        running = [pool.submit(trials.inject, one, root, norm.limits, norm.bound_s) for one, norm in orders]
        for done in as_completed(running):
            one = done.result()
            judged.append(one)
            if not one.is_clean:
                say(f"WRONG {one}")
            if len(judged) % 20 == 0:
                say(f"{len(judged)} of {len(orders)}")
    return judged


def run_studies(names: Sequence[str], injections: int, root: Path) -> list[Judged]:
    """Strike a whole study so many times for each fault of our own side, one study after the other."""
    judged: list[Judged] = []
    for name in names:
        folder = root / name
        folder.mkdir()
        say(f"a study for {name}")
        try:
            judged += STUDY_FAULTS[name](folder, injections)
        except Exception:
            judged.append(Judged.lost(name, folder, traceback.format_exc()))
    for one in judged:
        if not one.is_clean:
            say(f"WRONG {one}")
    return judged


def main() -> int:
    """Parse the command line, run, print."""
    names = [*(one.name for one in INJECTIONS), *STUDY_FAULTS]
    parser = argparse.ArgumentParser(prog="benchmarks.faults", description=__doc__)
    parser.add_argument("--injections", type=int, default=20, help="per fault (default 20)")
    parser.add_argument(
        "--only", action="append", choices=names, metavar="FAULT", help=f"repeatable: {', '.join(names)}"
    )
    parser.add_argument("--jobs", type=int, default=12, help="injections at a time (default 12: most of them wait)")
    asked = parser.parse_args()
    wanted = set(asked.only or names)
    root = Path(tempfile.mkdtemp(prefix="tuner-faults-"))
    root.chmod(0o755)  # PostgreSQL runs as another user where the benchmark runs as root
    judged = run_matrix([one for one in INJECTIONS if one.name in wanted], asked.injections, asked.jobs, root)
    judged += run_studies([name for name in STUDY_FAULTS if name in wanted], asked.injections, root)
    is_on_target = report.is_on_target(judged)
    if is_on_target:
        shutil.rmtree(root)
    else:
        say(f"run directories of wrong injections: {root}")
    print(report.summary(judged))
    return 0 if is_on_target else 1


if __name__ == "__main__":
    sys.exit(main())

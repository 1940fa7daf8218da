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
from pathlib import Path

from benchmarks.faults import report, stopping, trials
from benchmarks.faults.catalogue import INJECTIONS, Injection
from benchmarks.faults.strikes import STUDY_FAULTS
from benchmarks.faults.trials import Judged, Norm
from tuner.domain.measurement import Measured
from tuner.domain.outcome import Phase
from tuner.domain.output import OutputReference
from tuner.domain.trial import Purpose, TrialReport
from tuner.trial.deadlines import learn_limits

_GOOD_LAUNCHES = 5
_MINUTE_S = 60.0
_STOPPED = 130
"""Exit code of a program that Ctrl-C ended, as shells have it."""
_LAUNCH_ENDS = (Phase.SERVING, Phase.TEARDOWN)


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def learn_norm(flags: Mapping[str, str], root: Path, jobs: int) -> Norm:
    """Launch without a fault, as many at a time as there will be with faults."""
    plain = Injection("none", flags=flags)

    def one(number: int) -> TrialReport:
        run_dir = root / "good" / f"{len(flags)}-{number}"
        space = trials.fault_space(plain, f"good-{number}")
        done = trials.run_once(space, run_dir, Norm({}, 0.0), Purpose.BASELINE)
        if not isinstance(done.outcome, Measured):
            raise SystemExit(f"a launch without a fault failed: {done.outcome}")
        return done

    with ThreadPoolExecutor(jobs) as pool:
        good = list(pool.map(one, range(max(_GOOD_LAUNCHES, jobs))))
    launches = [{p: s for p, s in one.phase_seconds.items() if p not in _LAUNCH_ENDS} for one in good]
    median = statistics.median(sum(launch.values()) for launch in launches)
    say(f"median good launch {median:.2f} s over {len(good)} {dict(flags) or ''}")
    output = good[0].output
    reference = OutputReference(output.prompts, output.answers) if output is not None else None
    return Norm(learn_limits(launches), 2 * median + _MINUTE_S, reference)


def run_matrix(chosen: Sequence[Injection], injections: int, jobs: int, root: Path) -> list[Judged]:
    """Inject every chosen fault so many times, several at a time and in turn."""
    kinds = {tuple(one.flags.items()) for one in chosen}
    norms = {kind: learn_norm(dict(kind), root, jobs) for kind in sorted(kinds)}
    judged: list[Judged] = []
    with ThreadPoolExecutor(jobs) as pool:
        orders = [(one, norms[tuple(one.flags.items())]) for _ in range(injections) for one in chosen]
        running = [pool.submit(trials.inject, one, root, norm) for one, norm in orders]
        for done in as_completed(running):
            one = done.result()
            judged.append(one)
            if not one.is_clean:
                say(f"WRONG {one}")
            if len(judged) % 20 == 0:
                say(f"{len(judged)} of {len(orders)}")
    return judged


def run_studies(names: Sequence[str], injections: int, jobs: int, root: Path) -> list[Judged]:
    """Strike a whole study so many times for each fault of our own side, several studies at a time."""

    def strike(name: str) -> list[Judged]:
        stopping.check()
        folder = root / name
        folder.mkdir()
        say(f"a study for {name}")
        try:
            return STUDY_FAULTS[name](folder, injections)
        except Exception:
            return [Judged.lost(name, folder, traceback.format_exc())]

    judged: list[Judged] = []
    with ThreadPoolExecutor(jobs) as pool:
        for done in as_completed([pool.submit(strike, name) for name in names]):
            judged += done.result()
            for one in done.result():
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
    parser.add_argument("--studies", type=int, default=3, help="whole studies at a time (default 3)")
    asked = parser.parse_args()
    wanted = set(asked.only or names)
    stopping.listen()
    root = Path(tempfile.mkdtemp(prefix="tuner-faults-"))
    root.chmod(0o755)  # PostgreSQL runs as another user where the benchmark runs as root
    try:
        judged = run_matrix([one for one in INJECTIONS if one.name in wanted], asked.injections, asked.jobs, root)
        judged += run_studies([name for name in STUDY_FAULTS if name in wanted], asked.injections, asked.studies, root)
    except stopping.Stopped:
        stopping.clear_away(root)
        say("stopped; nothing is left")
        return _STOPPED
    is_on_target = report.is_on_target(judged)
    if is_on_target:
        shutil.rmtree(root)
    else:
        say(f"run directories of wrong injections: {root}")
    print(report.summary(judged))
    return 0 if is_on_target else 1


if __name__ == "__main__":
    sys.exit(main())

"""How often does one study of the simulated sm120 space find what it is looked for?

`python -m benchmarks.sm120 [--seeds N] [--trials N] [--served N]`

The story that the space retells ended at 90.0 tok/s alone with 2,320 at 128 requests. A study *reaches* it when one of
the configurations that it measured truly gives at least 90 tok/s alone and 2,300 under load; it *says so* when the one
that it would export (best single stream within the limits) truly does. True values are those of the performance model,
so a lucky launch does not count. Everything here is simulated.

Launches are sampled from the model and its noise; with `--served N` the first N seeds are run again with real server
processes and the real load client.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

from benchmarks.command_line import end_with
from benchmarks.modelled import Machine, modelled_study
from tuner.domain.candidate import Candidate
from tuner.domain.outcome import FailureClass
from tuner.domain.space import Space
from tuner.engines.catalogue import catalogues
from tuner.export.standings import front_of
from tuner.spec import load_space
from tuner.store import open_store

SINGLE, THROUGHPUT = 90.0, 2300.0
SPACE = "sm120-simulated"


@dataclass(frozen=True)
class Result:
    """One study: whether it reached the goal, whether its export does, and the export's true values."""

    reached: bool
    says_so: bool
    single: float
    throughput: float


def judge(space: Space, machine: Machine, measured: list[Candidate], exported: Candidate) -> Result:
    """Compare configurations by their true values."""

    def true_values(candidate: Candidate) -> tuple[float, float]:
        rates = machine.true_rates(space, candidate)
        assert not isinstance(rates, FailureClass), "a configuration that was measured cannot fail in the model"
        return rates[1], rates[128]

    def good(values: tuple[float, float]) -> bool:
        return values[0] >= SINGLE and values[1] >= THROUGHPUT

    chosen = true_values(exported)
    return Result(any(good(true_values(candidate)) for candidate in measured), good(chosen), *chosen)


def modelled(space: Space, seed: int) -> Result:
    """A study whose launches are sampled from the model."""
    machine = Machine(seed)
    with modelled_study(space, machine, "tuner") as study:
        study.coordinator.run()
        front = front_of(space, study.attempts)
    known = [*front.members, *front.beaten, *front.infeasible]
    return judge(space, machine, [s.candidate for s in known], front.pick("single-stream").candidate)


def served(space: Space, seed: int, trials: int) -> Result:
    """A study as a user runs it: real server processes, the real load client."""
    with tempfile.TemporaryDirectory(prefix="tuner-sm120-") as folder:
        command = [sys.executable, "-m", "tuner.cli.main", "study", "start", "--space", SPACE, "--name", "s", "--yes"]
        command += ["--seed", str(seed), "--trials", str(trials)]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
        with open_store(f"sqlite:///{folder}/tuner.db") as store:
            front = front_of(store.study("s").space, store.attempts("s"))
    known = [*front.members, *front.beaten, *front.infeasible]
    return judge(space, Machine(seed), [s.candidate for s in known], front.pick("single-stream").candidate)


def share(count: int, of: int) -> str:
    """`7 of 10 (40–89 %)`: with the Wilson score interval at 95 % (Wilson, JASA 22, 1927)."""
    if not of:
        return "0 of 0"
    z, p = 1.959964, count / of
    middle = (p + z * z / (2 * of)) / (1 + z * z / of)
    half = z / (1 + z * z / of) * math.sqrt(p * (1 - p) / of + z * z / (4 * of * of))
    return f"{count} of {of} ({max(0.0, middle - half) * 100:.0f}–{min(1.0, middle + half) * 100:.0f} %)"


def report(kind: str, results: list[Result], seconds: float) -> dict[str, object]:
    """Print one kind of study and return it as data."""
    reached, said = sum(r.reached for r in results), sum(r.says_so for r in results)
    print(f"{kind}: {len(results)} studies, {seconds:.0f} s")
    print(f"  reached ≥ {SINGLE:g} tok/s alone with ≥ {THROUGHPUT:,.0f} at C=128: {share(reached, len(results))}")
    print(f"  the exported configuration does: {share(said, len(results))}")
    for index, r in enumerate(results):
        print(f"    seed {index}: exported {r.single:.1f} / {r.throughput:,.0f} (true values, simulated)")
    return {"studies": len(results), "reached": reached, "exported": said}


def main() -> None:
    """Run the studies; the last line is one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10, help="studies, seeds 0 upwards")
    parser.add_argument("--trials", type=int, default=40, help="launches of a study")
    parser.add_argument("--served", type=int, default=0, help="seeds run again with real server processes")
    given = parser.parse_args()
    overrides = {"budget.trials": given.trials}
    space = load_space(SPACE, catalogues=catalogues(), overrides=overrides).space
    document: dict[str, object] = {"trials": given.trials}
    began = time.monotonic()
    document["modelled"] = report(
        "modelled launches", [modelled(space, seed) for seed in range(given.seeds)], time.monotonic() - began
    )
    if given.served:
        began = time.monotonic()
        results = [served(space, seed, given.trials) for seed in range(given.served)]
        document["served"] = report("served launches", results, time.monotonic() - began)
    print(json.dumps(document))


if __name__ == "__main__":
    end_with(main)

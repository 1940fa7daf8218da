"""Plain launches against warm ones, of the same server, in turn: seconds to the first token, and speed once it runs.

    python -m benchmarks.relaunch                                   # vLLM of search_spaces/cpu.yaml
    python -m benchmarks.relaunch --space h200-x2.yaml --launches 5 --levels 1,32,128
    python -m benchmarks.relaunch --order warm,warm,plain --seconds 240 --out results/

A relaunch is counted from the moment at which the previous server is asked to end. Caches are warm: the first launch of
all fills them and is not counted. The last line is one JSON object; `--out` also keeps every launch as it comes.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from pathlib import Path

from benchmarks.command_line import end_with, load_levels
from tuner.domain.measurement import Metric
from tuner.domain.workload import Workload
from tuner.engines.catalogue import catalogues
from tuner.engines.control import ControlPlane, NotReadyError
from tuner.engines.failures import is_fatal_line
from tuner.engines.phasemarks import phase_of_line
from tuner.engines.plan import Place
from tuner.spec import load_space
from tuner.trial.assembly import EngineSetup, engine_setup
from tuner.trial.deadlines import PhaseDeadlines
from tuner.trial.ports import reserve_ports
from tuner.trial.process import LOG, ServerHandle, launch
from tuner.trial.protocol import measure
from tuner.trial.statistics import ratio_interval
from tuner.trial.warm import ColdError, WarmParent, WarmParents
from tuner.trial.watchdog import LaunchFailed, WaitCancelled, wait_ready

KINDS = ("plain", "warm")


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch.

    Attributes:
        kind: plain or warm.
        ready_s: start to first token.
        teardown_s: until nothing of it was left.
        tok_s: output tokens per second, repeat by repeat, by the number of requests at a time.
        phases: seconds of each phase of the start.
        failure: why it gave no token; the seconds are then those until that was known.
    """

    kind: str
    ready_s: float
    teardown_s: float
    tok_s: dict[int, tuple[float, ...]] = dataclasses.field(default_factory=dict)
    phases: dict[str, float] = dataclasses.field(default_factory=dict)
    failure: str = ""

    @property
    def relaunch_s(self) -> float:
        """Tear-down to first token."""
        return self.ready_s + self.teardown_s


class Bench:
    """Launches the baseline of one engine, one after the other."""

    def __init__(self, setup: EngineSetup, folder: Path, workload: Workload, deadline: float) -> None:
        self._setup = setup
        self._folder = folder
        self._workload = workload
        self._deadline = deadline
        self._parents = WarmParents()

    def close(self) -> None:
        """End the processes with the engine's imports."""
        self._parents.close()

    @property
    def seconds_left(self) -> float:
        """Until the deadline."""
        return self._deadline - time.monotonic()

    def launch(self, kind: str, number: int) -> Launch:
        """Launch once, measure, end it.

        Raises:
            ColdError: it cannot be launched warm.
        """
        setup = self._setup
        gpus = tuple(range(setup.space.hardware.gpus))
        with reserve_ports(setup.port_count) as ports:
            plan = setup.plan(setup.baseline_candidate, Place("127.0.0.1", ports.ports[0], ports.ports[1:], gpus))
            parent = None
            if kind == "warm":
                parent = self._parents.parent_for(plan, setup.definition.warm, self._folder / "warm.log")
                _tell_once(parent)
            run_dir = self._folder / f"{number}-{kind}"
            with launch(plan, run_dir, holds=ports.locks, warm=parent) as server:
                done = self._wait_and_measure(kind, server)
            assert server.proof is not None
            if not server.proof.is_clean:
                raise SystemExit(f"{kind}: {server.proof}")
            return dataclasses.replace(done, teardown_s=server.proof.seconds)

    def _wait_and_measure(self, kind: str, server: ServerHandle) -> Launch:
        setup, plan = self._setup, server.plan
        with ControlPlane(plan.base_url, setup.definition) as control:
            try:
                ready = wait_ready(
                    server,
                    partial(_has_token, control),
                    phase_of_line(plan.engine),
                    PhaseDeadlines.of(setup.space.budget.launch_timeout_s, {}),
                    is_fatal_line(plan.engine),
                    is_cancelled=lambda: self.seconds_left < 0,
                )
            except (LaunchFailed, WaitCancelled) as failed:
                return Launch(kind, time.monotonic() - server.started_at, 0.0, failure=str(failed) or "out of time")
            levels = measure(plan.base_url, control.served_model(), self._workload, seed=1, flush=control.flush)
        speeds = {
            level: next(m for m in result.measurements if m.metric is Metric.OUTPUT_TOK_S).repeats
            for level, result in zip(self._workload.levels, levels, strict=True)
        }
        phases = {phase.value: round(seconds, 2) for phase, seconds in ready.phase_seconds.items()}
        tok_s = {level: tuple(round(one, 2) for one in repeats) for level, repeats in speeds.items()}
        return Launch(kind, ready.seconds, 0.0, tok_s, phases)


_told: set[int] = set()


def _tell_once(parent: WarmParent) -> None:
    if parent.process.pid not in _told:
        _told.add(parent.process.pid)
        imported = parent.imported
        print(f"imports {imported.seconds:.1f} s  left out {sorted(imported.missing)}", flush=True)
        for device, module in sorted(imported.opened_by.items()):
            print(f"  {device} was first seen open while {module} was imported", flush=True)


def _has_token(control: ControlPlane) -> bool:
    try:
        control.complete(control.served_model(), "The", max_tokens=1, timeout_s=60.0)
    except NotReadyError:
        return False
    return True


def run(bench: Bench, order: Iterable[str], out: Path | None, folder: Path) -> list[Launch]:
    """Launch in the given order; the first fills the caches and is not counted.

    A kind is left out when the time that is left is less than its last launch took, or the longest launch if it had
    none; once no kind fits any more, it is over.
    """
    done: list[Launch] = []
    needed: dict[str, float] = {}
    too_long: set[str] = set()
    number = 0
    for kind in order:
        if bench.seconds_left < needed.get(kind, max(needed.values(), default=0.0)):
            too_long.add(kind)
            if too_long >= {*needed, kind}:
                break
            continue
        began = time.monotonic()
        one = bench.launch(kind, number)
        needed[kind] = time.monotonic() - began
        print(_line(number, one), flush=True)
        if out is not None:
            with (out / "launches.jsonl").open("a", encoding="utf-8") as kept:
                kept.write(json.dumps({"number": number, **dataclasses.asdict(one)}) + "\n")
            shutil.copy(folder / f"{number}-{kind}" / LOG, out / f"{number}-{kind}.log")
        if number and not one.failure:
            done.append(one)
        number += 1
    return done


def _line(number: int, one: Launch) -> str:
    if one.failure:
        return f"{number} {one.kind:5}  failed after {one.ready_s:.1f} s: {one.failure}"
    speeds = "".join(f"  C={level} {statistics.median(repeats):7.2f} tok/s" for level, repeats in one.tok_s.items())
    return f"{number} {one.kind:5}  first token {one.ready_s:6.1f} s  tear-down {one.teardown_s:4.1f} s{speeds}"


def summary(launches: Sequence[Launch]) -> dict[str, object]:
    """Medians of each kind that was launched, each launch's seconds and speed, and how the kinds compare.

    Relaunches by the ratio of the medians; speeds by Welch's interval of the ratio, on logarithms (95 %).
    """
    of = {kind: [one for one in launches if one.kind == kind] for kind in KINDS}
    medians = {kind: statistics.median(one.relaunch_s for one in of[kind]) for kind in KINDS if of[kind]}
    levels = sorted({level for one in launches for level in one.tok_s})
    speeds = {
        level: {kind: [statistics.median(one.tok_s[level]) for one in of[kind]] for kind in KINDS} for level in levels
    }
    faster = {level: ratio_interval(of_kind["warm"], of_kind["plain"]) for level, of_kind in speeds.items()}
    return {
        "relaunch_s": medians,
        "ratio": medians["warm"] / medians["plain"] if len(medians) == len(KINDS) else None,
        "each_relaunch_s": {kind: [round(one.relaunch_s, 2) for one in of[kind]] for kind in KINDS},
        "tok_s": speeds,
        "warm_faster_by": {
            level: [round(part, 4) for part in (found.center, found.low, found.high)] if found else None
            for level, found in faster.items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--space", default="cpu.yaml", help="whose baseline is launched")
    parser.add_argument("--engine", default="vllm", help="which engine of the space")
    parser.add_argument("--model", help="model folder instead of the space's")
    parser.add_argument("--gpus", type=int, help="GPUs per launch instead of the space's")
    parser.add_argument("--launches", type=int, default=5, help="counted launches of each kind")
    parser.add_argument("--order", help="kinds in this order, over and over until --seconds are over")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no launch begins that would end later")
    parser.add_argument(
        "--levels", type=load_levels, default=(1,), help="requests at a time while speed is measured; default 1"
    )
    parser.add_argument("--out", type=Path, help="folder for each launch's numbers and log, written as they come")
    arguments = parser.parse_args()
    deadline = time.monotonic() + arguments.seconds
    overrides = {} if arguments.gpus is None else {"hardware.gpus": arguments.gpus}
    space = load_space(arguments.space, catalogues=catalogues(), overrides=overrides).space
    if arguments.model:
        space = space.model_copy(update={"model": arguments.model})
    # Which kind goes first changes from pair to pair: a slow drift of the machine touches both alike.
    pairs = [kind for number in range(arguments.launches) for kind in (KINDS if number % 2 else KINDS[::-1])]
    order = cycle(arguments.order.split(",")) if arguments.order else iter(["warm", *pairs])
    if arguments.out is not None:
        arguments.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="relaunch-") as name:
        workload = space.workload.model_copy(update={"levels": arguments.levels, "repeats": 1})
        bench = Bench(engine_setup(space, arguments.engine), Path(name), workload, deadline)
        try:
            done = run(bench, order, arguments.out, Path(name))
        except ColdError as error:
            raise SystemExit(f"no warm launch: {error}") from error
        finally:
            bench.close()
            log = Path(name) / "warm.log"
            if arguments.out is not None and log.exists():
                shutil.copy(log, arguments.out)
    print(json.dumps(summary(done)))


if __name__ == "__main__":
    end_with(main)

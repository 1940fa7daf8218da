"""Plain launches against warm ones, of the same server, in turn: seconds to the first token, and speed once it runs.

    python -m benchmarks.relaunch                                   # vLLM of search_spaces/cpu.yaml
    python -m benchmarks.relaunch --space h200-x2.yaml --launches 5

A relaunch is counted from the moment at which the previous server is asked to end. Caches are warm: each kind has one
launch that is not counted. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

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
from tuner.trial.process import launch
from tuner.trial.protocol import measure
from tuner.trial.warm import WarmParents
from tuner.trial.watchdog import wait_ready

KINDS = ("plain", "warm")


@dataclass(frozen=True)
class Launch:
    """One launch: seconds to its first token and to its end, and output tok/s of one request at a time."""

    kind: str
    ready_s: float
    teardown_s: float
    tok_s: float

    @property
    def relaunch_s(self) -> float:
        """Tear-down to first token."""
        return self.ready_s + self.teardown_s


def one_launch(setup: EngineSetup, kind: str, parents: WarmParents, folder: Path, workload: Workload) -> Launch:
    """Launch the baseline once, measure it, end it."""
    gpus = tuple(range(setup.space.hardware.gpus))
    with reserve_ports(setup.port_count) as ports:
        plan = setup.plan(setup.baseline_candidate, Place("127.0.0.1", ports.ports[0], ports.ports[1:], gpus))
        parent = parents.parent_for(plan, setup.definition.warm, folder.parent / "warm.log") if kind == "warm" else None
        began = time.monotonic()
        with (
            launch(plan, folder, holds=ports.locks, warm=parent) as server,
            ControlPlane(plan.base_url, setup.definition) as control,
        ):
            wait_ready(
                server,
                partial(_has_token, control),
                phase_of_line(plan.engine),
                PhaseDeadlines.of(setup.space.budget.launch_timeout_s, {}),
                is_fatal_line(plan.engine),
            )
            ready_s = time.monotonic() - began
            levels = measure(plan.base_url, control.served_model(), workload, seed=1, flush=control.flush)
        proof = server.close()
        if not proof.is_clean:
            raise SystemExit(f"{kind}: {proof}")
    speed = next(m.center for m in levels[0].measurements if m.metric is Metric.OUTPUT_TOK_S)
    return Launch(kind, ready_s, proof.seconds, speed)


def _has_token(control: ControlPlane) -> bool:
    try:
        control.complete(control.served_model(), "The", max_tokens=1, timeout_s=60.0)
    except NotReadyError:
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--space", default="cpu.yaml")
    parser.add_argument("--engine", default="vllm")
    parser.add_argument("--model", help="model folder instead of the space's")
    parser.add_argument("--launches", type=int, default=5, help="counted launches of each kind")
    arguments = parser.parse_args()
    space = load_space(arguments.space, catalogues=catalogues()).space
    if arguments.model:
        space = space.model_copy(update={"model": arguments.model})
    setup = engine_setup(space, arguments.engine)
    workload = space.workload.model_copy(update={"levels": (1,), "repeats": 1})
    parents, done = WarmParents(), []
    try:
        with tempfile.TemporaryDirectory(prefix="relaunch-") as folder:
            for number in range(arguments.launches + 1):
                for kind in KINDS if number % 2 else reversed(KINDS):
                    result = one_launch(setup, kind, parents, Path(folder) / f"{number}-{kind}", workload)
                    print(
                        f"{number} {kind:5}  first token {result.ready_s:6.1f} s  tear-down {result.teardown_s:4.1f} s"
                        f"  C=1 {result.tok_s:7.2f} tok/s",
                        flush=True,
                    )
                    if number:
                        done.append(result)
    finally:
        parents.close()
    print(json.dumps(summary(done)))


def summary(launches: list[Launch]) -> dict[str, object]:
    """Medians of each kind, and the ratio of the two."""
    of = {kind: [one for one in launches if one.kind == kind] for kind in KINDS}
    relaunch = {kind: statistics.median(one.relaunch_s for one in of[kind]) for kind in KINDS}
    return {
        "launches": {kind: len(of[kind]) for kind in KINDS},
        "relaunch_s": relaunch,
        "ready_s": {kind: statistics.median(one.ready_s for one in of[kind]) for kind in KINDS},
        "ratio": relaunch["warm"] / relaunch["plain"],
        "tok_s": {kind: [round(one.tok_s, 2) for one in of[kind]] for kind in KINDS},
    }


if __name__ == "__main__":
    main()

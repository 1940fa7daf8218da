"""Public failure reports with their right answers, and how a harness would see each of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.domain.outcome import Failure, Observation, Phase
from tuner.engines.failures import explain

DATA = Path(__file__).parents[1] / "data"
NONE = "none"

_PHASES = {
    "parse": Phase.PARSE,
    "init": Phase.NCCL_INIT,
    "load": Phase.WEIGHTS,
    "profile": Phase.PROFILE,
    "capture": Phase.GRAPH_CAPTURE,
    "warmup": Phase.WARMUP,
    "serve": Phase.SERVING,
    "shutdown": Phase.TEARDOWN,
}


@dataclass(frozen=True)
class Case:
    """One report: the telling lines of a log, and how the launch ended."""

    id: str
    engine: str
    log: str
    true_cause: str
    harmless_lines: tuple[str, ...] = ()
    phase: Phase | None = None
    exit: str = ""

    @property
    def lines(self) -> list[str]:
        return self.log.split("\n")

    @property
    def circumstances(self) -> dict[str, Any]:
        """What a harness knows beside the log."""
        known: dict[str, Any] = {"phase": self.phase}
        if self.exit == "hang":
            known["observation"] = Observation.HUNG
        elif self.exit.startswith("crash"):
            known["observation"] = Observation.EXITED
        elif self.exit and not self.exit.startswith("none"):
            known["exit_code"] = int(self.exit.split()[0])
        return known


def read_cases(name: str) -> list[Case]:
    """The cases of a file of the test data."""
    return read_file(DATA / "cases" / name)


def read_file(path: Path) -> list[Case]:
    """The cases of a JSON-lines file."""
    return [_case(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def _case(row: Mapping[str, Any]) -> Case:
    # Rows about NCCL alone are read with either engine's signatures; both extend the common ones.
    engine = row["engine"] if row["engine"] in ("sglang", "vllm") else "vllm"
    phase = _PHASES[row["phase"]] if "phase" in row else None
    harmless = tuple(row.get("harmless_lines", ()))
    return Case(row["id"], engine, row["log"], row["true_cause"], harmless, phase, row.get("exit", ""))


def class_of(failure: Failure | None) -> str:
    return NONE if failure is None else failure.failure_class.value


def read(case: Case, lines: list[str] | None = None) -> str:
    """The class that a harness gets for a case, or for a changed copy of its log."""
    return class_of(explain(case.lines if lines is None else lines, engine=case.engine, **case.circumstances))

"""The protocol of a search problem, and how such a module becomes a space that the search can work on.

A problem is a Python file with these names:

    KNOBS        list of {name, values, ordinal, when: {knob, equals} | None}
    BASELINE     knob → value
    OBJECTIVES   [(name, "maximize" | "minimize"), …]; the first one leads
    REFERENCE    objective → value from which hypervolume is reckoned
    HV_BEST      hypervolume of the true front
    BEST_SINGLE  best true value of the first objective among points that keep 97 % of the baseline's second one
    truth(assignment)         → {status, values}
    evaluate(assignment, rng) → {status: ok | crash | oom | hang, values or None, seconds}: one noisy launch

`truth` may be missing (a recorded problem): then the values of `evaluate` stand in for it. Instead of the names a file
may hold an object `PROBLEM` with these attributes, or a family of problems: a function `draw(seed)` that gives one.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from tuner.domain.candidate import Candidate
from tuner.domain.measurement import Metric
from tuner.domain.outcome import FailureClass
from tuner.domain.space import Space
from tuner.domain.values import spell

ENGINE = "modelled"
KEEP = 0.97
"""Share of the baseline's second objective that the best single-stream candidate must keep."""

FAILURES: Mapping[str, FailureClass] = {
    "crash": FailureClass.BAD_FLAG,
    "oom": FailureClass.OOM_RUNTIME,
    "hang": FailureClass.NCCL_HANG,
}


@dataclass(frozen=True)
class Problem:
    """A loaded problem."""

    name: str
    space: Space
    baseline: Candidate
    objectives: tuple[str, ...]
    maximize: tuple[bool, ...]
    reference: tuple[float, ...]
    hypervolume: float
    best_single: float
    evaluate: Callable[[Mapping[str, Any], np.random.Generator], Mapping[str, Any]]
    truth: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None

    def true_values(self, candidate: Candidate, measured: Mapping[str, Any]) -> tuple[float, ...] | None:
        """What a launched candidate is really worth; None when it fails by its own fault."""
        found = self.truth(candidate.values) if self.truth is not None else measured
        return None if found["status"] != "ok" else tuple(found["values"][name] for name in self.objectives)


@functools.cache
def load(path: Path, seed: int = 0) -> Problem:
    """Import a problem file by its path; once per process, since working out the optimum takes a second.

    Args:
        path: of the file.
        seed: which problem of a family; of no meaning where the file holds a single one.

    Raises:
        SystemExit: when the file lacks a name of the protocol.
    """
    file = _module(path)
    module = file.draw(seed) if hasattr(file, "draw") else getattr(file, "PROBLEM", file)
    missing = [n for n in ("KNOBS", "BASELINE", "OBJECTIVES", "REFERENCE", "evaluate") if not hasattr(module, n)]
    if missing:
        raise SystemExit(f"{path}: not a search problem: no {', '.join(missing)}")
    space = space_of(path.stem, module.KNOBS, module.OBJECTIVES)
    names = tuple(name for name, _ in module.OBJECTIVES)
    return Problem(
        name=path.stem.removesuffix("_problem"),
        space=space,
        baseline=Candidate.of(space, ENGINE, dict(module.BASELINE)),
        objectives=names,
        maximize=tuple(direction == "maximize" for _, direction in module.OBJECTIVES),
        reference=tuple(float(module.REFERENCE[name]) for name in names),
        hypervolume=float(getattr(module, "HV_BEST", float("nan"))),
        best_single=float(getattr(module, "BEST_SINGLE", float("nan"))),
        evaluate=module.evaluate,
        truth=getattr(module, "truth", None),
    )


@functools.cache
def _module(path: Path) -> ModuleType:
    found = importlib.util.spec_from_file_location(f"problem_{path.stem}", path)
    if found is None or found.loader is None:
        raise SystemExit(f"{path}: not a Python file")
    module = importlib.util.module_from_spec(found)
    sys.modules[found.name] = module
    found.loader.exec_module(module)
    return module


def space_of(name: str, knobs: Sequence[Mapping[str, Any]], objectives: Sequence[tuple[str, str]]) -> Space:
    """A space file's content for a problem: every knob an environment variable of one made-up engine."""
    return Space.model_validate(
        {
            "name": name,
            "model": "none",
            "engines": {ENGINE: {"knobs": {knob["name"]: _knob(knob) for knob in knobs}}},
            "budget": {"baseline_launches": 1},
            "workload": {"levels": list(range(1, len(objectives) + 1))},
            "objectives": [
                {
                    "metric": Metric.OUTPUT_TOK_S if direction == "maximize" else Metric.TTFT_P99_MS,
                    "level": level,
                    "name": label,
                }
                for level, (label, direction) in enumerate(objectives, 1)
            ],
        }
    )


def _knob(knob: Mapping[str, Any]) -> Mapping[str, Any]:
    given = {"values": list(knob["values"]), "ordered": bool(knob["ordinal"]), "env": knob["name"].upper()}
    if knob.get("when"):
        wanted = knob["when"]["equals"]
        word = f'"{wanted}"' if isinstance(wanted, str) else spell(wanted)
        given["when"] = f"{knob['when']['knob']} == {word}"
    return given

"""The protocol of a search problem, and how such a module becomes a space that the search can work on.

A problem is a Python file with these names:

    KNOBS        list of {name, values, ordinal, when: {knob, equals} | None}; `ordinal` and `when` may be left out
    BASELINE     knob → value
    OBJECTIVES   [(name, "maximize" | "minimize"), …], one to four; the first one leads
    REFERENCE    objective → value from which hypervolume is reckoned
    evaluate(assignment, rng) → {status: ok | crash | oom | hang, values or None, seconds}: one noisy launch

and, if it can, these:

    HV_BEST      hypervolume of the true front; without it nothing is said of the volume
    BEST_SINGLE  best true value of the first objective among points that keep 97 % of the baseline's others; without it
                 nothing is said of launches until the best
    truth(assignment) → {status, values}; without it (a recorded problem) the values of `evaluate` stand in for it

Instead of the names a file may hold an object `PROBLEM` with these attributes, or a family of problems: a function
`draw(seed)` that gives one.
"""

from __future__ import annotations

import functools
import importlib.util
import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.problems.blame import BrokenProblem, blaming
from tuner.domain.candidate import Candidate
from tuner.domain.measurement import Metric
from tuner.domain.outcome import FailureClass
from tuner.domain.space import Space
from tuner.domain.values import same, spell

ENGINE = "modelled"
KEEP = 0.97
"""Share of the baseline's second objective that the best single-stream candidate must keep."""

OURS = ("small", "full", "ordinary", "disguised", "interactions", "drawn", "h200_vllm", "h200_sglang")
"""The problems of this folder, which may be given by these names."""

FAILURES: Mapping[str, FailureClass] = {
    "crash": FailureClass.BAD_FLAG,
    "oom": FailureClass.OOM_RUNTIME,
    "hang": FailureClass.NCCL_HANG,
}

_FOLDER = Path(__file__).parent
_MOST_OBJECTIVES = 4
_NAME = re.compile(r"[a-z][a-z0-9_]*")
"""What a space file's names look like."""


@dataclass(frozen=True)
class Problem:
    """A loaded problem.

    Attributes:
        path: of its file.
        hypervolume: of the true front; NaN when the file does not say.
        best_single: NaN when the file does not say.
        given_names: knob of the space → the file's name for it.
        evaluate: the file's function.
        truth: the file's function, if it has one.
    """

    path: Path
    name: str
    space: Space
    baseline: Candidate
    objectives: tuple[str, ...]
    maximize: tuple[bool, ...]
    reference: tuple[float, ...]
    hypervolume: float
    best_single: float
    given_names: Mapping[str, str]
    evaluate: Callable[[Mapping[str, Any], np.random.Generator], Mapping[str, Any]]
    truth: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None

    def launch(self, candidate: Candidate, rng: np.random.Generator) -> Mapping[str, Any]:
        """One noisy launch, as `evaluate` returns it.

        Raises:
            BrokenProblem: when it fails or returns something else.
        """
        with blaming(self.path, "evaluate"):
            result = self.evaluate(self._assignment(candidate), rng)
            self._numbers(result)
            float(result["seconds"])
        return result

    def true_values(self, candidate: Candidate, measured: Mapping[str, Any]) -> tuple[float, ...] | None:
        """What a launched candidate is really worth; None when it fails by its own fault.

        Raises:
            BrokenProblem: when the file's truth fails or returns something else.
        """
        with blaming(self.path, "truth"):
            return self._numbers(measured if self.truth is None else self.truth(self._assignment(candidate)))

    def at_baseline(self) -> tuple[float, ...]:
        """The baseline's true values; where there is no truth, those of one launch.

        Raises:
            BrokenProblem: when it fails: a problem's baseline works.
        """
        measured = {} if self.truth is not None else self.launch(self.baseline, np.random.default_rng(0))
        values = self.true_values(self.baseline, measured)
        if values is None:
            raise BrokenProblem(f"{self.path}: the baseline fails, and a problem's baseline works")
        return values

    def _assignment(self, candidate: Candidate) -> Mapping[str, Any]:
        return {self.given_names[name]: value for name, value in candidate.values.items()}

    def _numbers(self, result: Mapping[str, Any]) -> tuple[float, ...] | None:
        status = result["status"]
        if status in FAILURES:
            return None
        if status != "ok":
            raise ValueError(f"status is {status!r} instead of ok, {', '.join(FAILURES)}")
        return tuple(float(result["values"][name]) for name in self.objectives)


def file_of(given: str) -> Path:
    """The file of a problem: of one of ours by its bare name, else as it was given."""
    return _FOLDER / f"{given}.py" if given in OURS else Path(given)


@functools.cache
def load(path: Path, seed: int = 0) -> Problem:
    """Import a problem file by its path; once per process, since working out the optimum takes a second.

    Args:
        path: of the file.
        seed: which problem of a family; of no meaning where the file holds a single one.

    Raises:
        BrokenProblem: when the file is none of the protocol.
    """
    file = _module(path)
    with blaming(path, "draw"):
        module = file.draw(seed) if hasattr(file, "draw") else getattr(file, "PROBLEM", file)
    missing = [n for n in ("KNOBS", "BASELINE", "OBJECTIVES", "REFERENCE", "evaluate") if not hasattr(module, n)]
    if missing:
        raise BrokenProblem(f"{path}: not a search problem: no {', '.join(missing)}")
    with blaming(path, "OBJECTIVES"):
        names, maximize = _objectives(module.OBJECTIVES)
    with blaming(path, "REFERENCE"):
        reference = tuple(float(module.REFERENCE[name]) for name in names)
    hypervolume, best_single = (_told(path, module, name) for name in ("HV_BEST", "BEST_SINGLE"))
    with blaming(path, "KNOBS"):
        ours = _names(module.KNOBS)
        space = _space(_knobs(module.KNOBS, ours), maximize)
    with blaming(path, "BASELINE"):
        baseline = Candidate.of(space, ENGINE, _baseline(module.BASELINE, module.KNOBS, ours))
    return Problem(
        path=path,
        name=path.stem.removesuffix("_problem"),
        space=space,
        baseline=baseline,
        objectives=names,
        maximize=maximize,
        reference=reference,
        hypervolume=hypervolume,
        best_single=best_single,
        given_names={our: given for given, our in ours.items()},
        evaluate=module.evaluate,
        truth=getattr(module, "truth", None),
    )


@functools.cache
def _module(path: Path) -> ModuleType:
    found = importlib.util.spec_from_file_location(f"problem_{path.stem}", path)
    if found is None or found.loader is None:
        raise BrokenProblem(f"{path}: not a Python file, and none of {', '.join(OURS)}")
    module = importlib.util.module_from_spec(found)
    sys.modules[found.name] = module
    with blaming(path, "cannot be imported"):
        found.loader.exec_module(module)
    return module


def _told(path: Path, module: object, name: str) -> float:
    with blaming(path, name):
        value = float(getattr(module, name, math.nan))
        if value <= 0:
            raise ValueError(f"{value:g} is not above 0")
        return value


def _objectives(given: Sequence[tuple[str, str]]) -> tuple[tuple[str, ...], tuple[bool, ...]]:
    names = tuple(name for name, _ in given)
    if not 1 <= len(set(names)) == len(names) <= _MOST_OBJECTIVES:
        raise ValueError(f"one to {_MOST_OBJECTIVES} of different names are wanted")
    for name, direction in given:
        if direction not in ("maximize", "minimize"):
            raise ValueError(f"{name} has the direction {direction!r} instead of maximize or minimize")
    return names, tuple(direction == "maximize" for _, direction in given)


def _names(knobs: Sequence[Mapping[str, Any]]) -> Mapping[str, str]:
    """The file's name of each knob → the space's: the same where a space file could say it, a number otherwise."""
    given = [str(knob["name"]) for knob in knobs]
    twice = sorted({name for name in given if given.count(name) > 1})
    if twice:
        raise ValueError(f"more than once: {', '.join(twice)}")
    return {name: name if _NAME.fullmatch(name) else f"knob_{i}" for i, name in enumerate(given)}


def _knobs(knobs: Sequence[Mapping[str, Any]], ours: Mapping[str, str]) -> Mapping[str, Any]:
    """Knobs as a space file has them: every one an environment variable."""
    values = {knob["name"]: [_plain(value) for value in knob["values"]] for knob in knobs}
    found = {}
    for knob in knobs:
        our = ours[knob["name"]]
        found[our] = {"values": values[knob["name"]], "ordered": bool(knob.get("ordinal")), "env": our.upper()}
        if knob.get("when"):
            gate, wanted = knob["when"]["knob"], _plain(knob["when"]["equals"])
            if not any(same(wanted, value) for value in values.get(gate, ())):
                raise ValueError(f"{knob['name']} is active when {gate} is {wanted!r}, which it never is")
            word = f'"{wanted}"' if isinstance(wanted, str) else spell(wanted)
            found[our]["when"] = f"{ours[gate]} == {word}"
    return found


def _baseline(
    given: Mapping[str, Any], knobs: Sequence[Mapping[str, Any]], ours: Mapping[str, str]
) -> Mapping[str, Any]:
    found = {}
    for name, value in given.items():
        values = next((knob["values"] for knob in knobs if knob["name"] == name), None)
        if values is None:
            raise ValueError(f"{name} is none of the knobs")
        if not any(same(_plain(value), _plain(other)) for other in values):
            raise ValueError(f"{name} has no value {value!r}")
        found[ours[name]] = _plain(value)
    left_out = [knob["name"] for knob in knobs if not knob.get("when") and knob["name"] not in given]
    if left_out:
        raise ValueError(f"no value of {', '.join(left_out)}")
    return found


def _plain(value: Any) -> Any:
    """A NumPy scalar as Python's own; anything else as it is."""
    return value.item() if isinstance(value, np.generic) else value


def _space(knobs: Mapping[str, Any], maximize: Sequence[bool]) -> Space:
    """A space file's content for a problem: its knobs belong to one made-up engine."""
    return Space.model_validate(
        {
            "name": "problem",
            "model": "none",
            "engines": {ENGINE: {"knobs": knobs}},
            "budget": {"baseline_launches": 1},
            "workload": {"levels": list(range(1, len(maximize) + 1))},
            "objectives": [
                {
                    "metric": Metric.OUTPUT_TOK_S if up else Metric.TTFT_P99_MS,
                    "level": level,
                    "name": f"objective_{level}",
                }
                for level, up in enumerate(maximize, 1)
            ],
        }
    )

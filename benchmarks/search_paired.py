"""Two versions of a search method compared seed by seed: what twenty shares cannot tell apart, paired figures can.

Whether a study reached the best within 40 launches says one bit; how far it was from the best at each launch says much
more, and the difference between two versions on the same seed is rid of what makes one problem harder than another.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from statistics import fmean

import numpy as np

from tuner.trial.statistics import mean_interval

FROM_LAUNCH = 10
"""Before it hardly any method knows anything."""

_NEAR = 0.005
"""Closeness to the best (log) below which it hardly counts: launch noise hides it."""


@dataclass(frozen=True, slots=True)
class Figures:
    """One study in figures that change smoothly with what it launched; of each, less is better.

    Attributes:
        log_regret: mean over the launches from `FROM_LAUNCH` on of the logarithm of how far the best launched candidate
            that keeps the floors is from the best one (a log ratio, plus half a percent): −0.1 is a tenth less regret.
        volume_regret: mean over the same launches of the share of the front's volume that is missing.
        launches: launches to within 2 % of the best; one more than the budget when it was not reached.
    """

    log_regret: float
    volume_regret: float
    launches: float

    @classmethod
    def of(cls, shortfall: Sequence[float], regret: Sequence[float], reached: float) -> Figures:
        """From what holds after each launch: the log ratio to the best, and the missing share of the volume."""
        late = slice(min(FROM_LAUNCH, len(shortfall)) - 1, None)
        return cls(
            log_regret=float(np.log(np.maximum(shortfall[late], 0.0) + _NEAR).mean()),
            volume_regret=float(np.mean(regret[late])),
            launches=float(min(reached, len(shortfall) + 1)),
        )


@dataclass(frozen=True, slots=True)
class Study:
    """What was run; equal ones are compared."""

    problem: str
    method: str
    seed: int
    budget: int


Studies = Mapping[Study, Figures]


def save(path: Path, studies: Studies) -> None:
    """Write figures, to be compared with later ones."""
    rows = [{**asdict(study), **asdict(figures)} for study, figures in studies.items()]
    path.write_text(json.dumps(rows, indent=1) + "\n")


def read(path: Path) -> Studies:
    """What `save` wrote."""
    found = {}
    for row in json.loads(path.read_text()):
        named = {field.name: row.pop(field.name) for field in fields(Study)}
        found[Study(**named)] = Figures(**row)
    return found


def comparison(before: Studies, now: Studies) -> str:
    """A table of the studies that both have: mean differences, 95 % intervals (Student), seeds better and worse."""
    names = [field.name for field in fields(Figures)]
    lines = ["| problem | method | pairs | " + " | ".join(f"{name}, now − before" for name in names) + " |"]
    lines.append("|---" * (3 + len(names)) + "|")
    common = [study for study in now if study in before]
    for problem, method in dict.fromkeys((study.problem, study.method) for study in common):
        pairs = [study for study in common if (study.problem, study.method) == (problem, method)]
        cells = [problem, method, str(len(pairs))]
        for name in names:
            cells.append(_change([getattr(now[study], name) - getattr(before[study], name) for study in pairs]))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _change(differences: Sequence[float]) -> str:
    interval = mean_interval(differences)
    spread = "" if interval is None else f" [{interval.low:+.3f}, {interval.high:+.3f}]"
    better, worse = sum(value < 0 for value in differences), sum(value > 0 for value in differences)
    return f"{fmean(differences):+.3f}{spread}, {better} better {worse} worse"

"""The front as a table: Markdown, CSV or JSON."""

from __future__ import annotations

from typing import Literal

import pandas as pd

from tuner.domain.front import Front, Standing
from tuner.domain.values import spell

TableFormat = Literal["md", "csv", "json"]


def front_frame(front: Front) -> pd.DataFrame:
    """One row per configuration: its place, trials, objectives with interval and gain, broken limits, settings.

    Objective columns are `<label>`, `<label> low`, `<label> high` (95 % interval, in the metric's unit) and
    `<label> gain` (1.12 = 12 % more than the baseline); settings follow under the knobs' names.
    """
    groups = (("front", front.members), ("beaten", front.beaten), ("over limit", front.infeasible))
    rows = [_row(front, place, standing) for place, standings in groups for standing in standings]
    return pd.DataFrame(rows)


def _row(front: Front, place: str, standing: Standing) -> dict[str, object]:
    row: dict[str, object] = {
        "place": place,
        "baseline": standing.is_baseline,
        "trials": " ".join(map(str, standing.trials)),
        "simulated": standing.simulated,
    }
    for goal, value, gain in zip(front.goals, standing.values, front.gains(standing), strict=True):
        row |= {
            goal.label: value.center,
            f"{goal.label} low": value.low,
            f"{goal.label} high": value.high,
            f"{goal.label} launches": value.launches,
            f"{goal.label} gain": None if gain is None else gain.ratio,
        }
    row |= {"breaks": " ".join(standing.broken), "engine": standing.candidate.engine}
    return row | {name: spell(value) for name, value in standing.candidate.values.items()}


def front_table(front: Front, form: TableFormat) -> str:
    """The table as text; numbers in full precision, except in Markdown, which is for people."""
    frame = front_frame(front)
    if form == "csv":
        return frame.to_csv(index=False)
    if form == "json":
        return frame.to_json(orient="records", indent=2, force_ascii=False) + "\n"
    shown = frame.map(lambda cell: f"{cell:.4g}" if isinstance(cell, float) else str(cell)).replace(["nan", "None"], "")
    lines = [list(map(str, shown.columns)), ["---"] * len(shown.columns), *shown.to_numpy().tolist()]
    return "".join(f"| {' | '.join(_cell(cell) for cell in line)} |\n" for line in lines)


def _cell(text: str) -> str:
    """A Markdown cell: a bar would end it, a line break the table."""
    return " ".join(text.replace("|", "\\|").split())

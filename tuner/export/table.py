"""The front as a table: Markdown for people, CSV for programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pandas as pd

from tuner.domain.front import Front, Gain, Standing
from tuner.domain.proof import Confirmation
from tuner.domain.values import spell
from tuner.export.base import Number, numbers_of
from tuner.export.report_proof import estimate, percent


def front_frame(front: Front, found: Confirmation | None = None) -> pd.DataFrame:
    """One row per configuration: its place, trials, objectives with interval and gain, broken limits, settings.

    Objective columns are `<label>`, `<label> low`, `<label> high` (95 % interval, in the metric's unit),
    `<label> launches`, and `<label> gain`, `<label> gain low`, `<label> gain high` (a share of the baseline's value:
    0.12 = 12 % more); settings follow under the knobs' names. Where `confirmed`, the numbers are those of the
    confirmation's launches alone.
    """
    return _frame(front, found, _number_columns)


def front_csv(front: Front, found: Confirmation | None = None) -> str:
    """The frame with numbers in full precision."""
    return front_frame(front, found).to_csv(index=False)


def front_markdown(front: Front, found: Confirmation | None = None) -> str:
    """The same rows with numbers as reports print them, each with its interval in one cell."""
    frame = _frame(front, found, _text_columns)
    shown = frame.map(str).replace(["nan", "None"], "")
    lines = [list(map(str, shown.columns)), ["---"] * len(shown.columns), *shown.to_numpy().tolist()]
    return "".join(f"| {' | '.join(_cell(cell) for cell in line)} |\n" for line in lines)


TABLES: Mapping[str, Callable[[Front, Confirmation | None], str]] = {"md": front_markdown, "csv": front_csv}
"""Name of a format → function from a front and its study's confirmation to the file's text."""

Columns = Callable[[Number], dict[str, object]]


def _frame(front: Front, found: Confirmation | None, columns: Columns) -> pd.DataFrame:
    groups = (("front", front.members), ("beaten", front.beaten), ("over limit", front.infeasible))
    return pd.DataFrame(
        _row(place, standing, numbers_of(front, standing, found), columns)
        for place, standings in groups
        for standing in standings
    )


def _row(place: str, standing: Standing, numbers: tuple[Number, ...], columns: Columns) -> dict[str, object]:
    row: dict[str, object] = {
        "place": place,
        "baseline": standing.is_baseline,
        "trials": " ".join(map(str, standing.trials)),
        "simulated": standing.simulated,
        "confirmed": any(number.confirmed for number in numbers),
    }
    for number in numbers:
        row |= columns(number)
    row |= {"breaks": " ".join(standing.broken), "engine": standing.candidate.engine}
    return row | {name: spell(value) for name, value in standing.candidate.values.items()}


def _number_columns(number: Number) -> dict[str, object]:
    label, value = number.goal.label, number.estimate
    columns: dict[str, object] = {
        label: value.center,
        f"{label} low": value.low,
        f"{label} high": value.high,
        f"{label} launches": value.launches,
    }
    gain = {"gain": None, "gain low": None, "gain high": None} if number.gain is None else _shares(number.gain)
    return columns | {f"{label} {name}": share for name, share in gain.items()}


def _shares(gain: Gain) -> dict[str, float | None]:
    ends = {"gain": gain.ratio, "gain low": gain.low, "gain high": gain.high}
    return {name: None if ratio is None else ratio - 1 for name, ratio in ends.items()}


def _text_columns(number: Number) -> dict[str, object]:
    label = number.goal.label
    return {
        f"{label} [{number.goal.metric.unit}]": estimate(number.estimate),
        f"{label} launches": number.estimate.launches,
        f"{label} gain": "" if number.gain is None else _gain_text(number.gain),
    }


def _gain_text(gain: Gain) -> str:
    """`+8.2 % [+8.0 %, +8.4 %]`."""
    middle = percent(gain.ratio - 1)
    if gain.low is None or gain.high is None:
        return middle
    return f"{middle} [{percent(gain.low - 1)}, {percent(gain.high - 1)}]"


def _cell(text: str) -> str:
    """A Markdown cell: a bar would end it, a line break the table."""
    return " ".join(text.replace("|", "\\|").split())

"""The front as a plot of characters, for terminals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tuner.cli.wording import number
from tuner.domain.front import Front, Standing, ends_of_load
from tuner.domain.space import Objective

_WIDTH, _HEIGHT = 64, 16
_MARGIN = 0.04
_BASELINE = "◆"


@dataclass(frozen=True, slots=True)
class _Scale:
    """Maps values to cells 0 … `cells` - 1."""

    low: float
    high: float
    cells: int

    @classmethod
    def over(cls, values: Sequence[float], cells: int) -> _Scale:
        low, high = min(values), max(values)
        room = (high - low) * _MARGIN or abs(high) * _MARGIN or 1.0
        return cls(low - room, high + room, cells)

    def cell(self, value: float) -> int:
        return min(self.cells - 1, max(0, int((value - self.low) / (self.high - self.low) * self.cells)))


def front_plot(front: Front) -> str | None:
    """Objectives of the highest load across and of the lowest up; None without two objectives or two points.

    `●` front, `◆` baseline, `·` beaten, `×` over a limit; whatever comes first in this list is drawn on top.
    """
    if len(front.goals) < 2:
        return None
    up, across = ends_of_load(front.goals)
    groups = ((front.infeasible, "×"), (front.beaten, "·"), (front.members, "●"))
    marked = [(s, _BASELINE if front.is_start(s) else mark) for standings, mark in groups for s in standings]
    # Baselines over everything else, so that they are always seen.
    marked.sort(key=lambda pair: pair[1] == _BASELINE)
    if len(marked) < 2:
        return None
    return "\n".join(_lines(marked, front.goals, across, up))


def _lines(marked: Sequence[tuple[Standing, str]], goals: Sequence[Objective], across: int, up: int) -> Iterator[str]:
    wide = _Scale.over([s.values[across].center for s, _ in marked], _WIDTH)
    high = _Scale.over([s.values[up].center for s, _ in marked], _HEIGHT)
    grid = [[" "] * _WIDTH for _ in range(_HEIGHT)]
    for standing, mark in marked:
        row = _HEIGHT - 1 - high.cell(standing.values[up].center)
        grid[row][wide.cell(standing.values[across].center)] = mark
    labels = {0: number(high.high), _HEIGHT - 1: number(high.low)}
    margin = max(map(len, labels.values()))
    yield f"{goals[up].label} [{goals[up].metric.unit}]"
    for index, cells in enumerate(grid):
        yield f"{labels.get(index, ''):>{margin}} │{''.join(cells).rstrip()}"
    yield f"{'':>{margin}} └{'─' * _WIDTH}"
    left, right = number(wide.low), number(wide.high)
    title = f"{goals[across].label} [{goals[across].metric.unit}]"
    yield f"{'':>{margin}}  {left}{title:^{_WIDTH - len(left) - len(right)}}{right}"
    yield f"{'':>{margin}}  ● front  {_BASELINE} baseline  · beaten  × over a limit"

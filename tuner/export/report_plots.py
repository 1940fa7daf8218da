"""The report's drawings as HTML fragments; plotly.js itself is put into the page once."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from tuner.domain.front import Estimate, Front, Standing, ends_of_load
from tuner.domain.load import LoadPoint
from tuner.domain.measurement import Metric
from tuner.domain.proof import Ablation, AblationKind, Confirmation
from tuner.domain.space import Objective
from tuner.domain.values import counted, spell
from tuner.export.base import Number, numbers_of
from tuner.export.report_load import SHOWN, Curve

_BLUE, _ORANGE, _GREY, _RED, _GREEN, _PURPLE = "#2563eb", "#d97706", "#9ca3af", "#dc2626", "#059669", "#7c3aed"
_FONT = 13
_LINES = (_ORANGE, _BLUE, _GREEN, _PURPLE)
# Without the row of buttons, which would hide the legend on a narrow screen: dragging zooms, a double click ends it.
_CONFIG: Mapping[str, Any] = {"displayModeBar": False, "responsive": True}


def plotly_js() -> str:
    """The library, to stand in a script element."""
    return str(get_plotlyjs())


def _span(values: Sequence[Estimate]) -> list[float]:
    """Axis range: all centres, and intervals as far as they do not dwarf what lies between the centres."""
    low, high = min(value.center for value in values), max(value.center for value in values)
    room = max(high - low, 0.1 * abs(high), 1e-9)
    down = min(value.center - value.below for value in values)
    up = max(value.center + value.above for value in values)
    return [max(down, low - room) - 0.05 * room, min(up, high + room) + 0.05 * room]


def _html(figure: go.Figure, name: str, height: int) -> str:
    figure.update_xaxes(title_font_size=_FONT, automargin=True)
    figure.update_yaxes(title_font_size=_FONT, automargin=True)
    figure.update_layout(
        template="plotly_white",
        height=height,
        margin={"l": 56, "r": 16, "t": 48, "b": 56},
        font={"family": "system-ui, sans-serif", "size": _FONT},
        legend={"orientation": "h", "yanchor": "top", "yref": "container", "y": 1, "xanchor": "left", "x": 0},
        hoverlabel={"align": "left"},
    )
    return str(figure.to_html(full_html=False, include_plotlyjs=False, div_id=f"figure-{name}", config=dict(_CONFIG)))


def _bars(values: Sequence[Estimate]) -> dict[str, Any]:
    return {
        "type": "data",
        "symmetric": False,
        "array": [value.above for value in values],
        "arrayminus": [value.below for value in values],
        "thickness": 1,
        "width": 3,
    }


def front_figure(front: Front, chosen: Standing | None, found: Confirmation | None) -> str | None:
    """Every configuration by the objectives of highest and lowest load; None without two objectives or any value.

    What took part in a confirmation is drawn with the numbers found there, as every table tells it.
    """
    if len(front.goals) < 2 or not (front.members or front.beaten or front.infeasible):
        return None
    up, across = ends_of_load(front.goals)
    told = {
        standing.trial: numbers_of(front, standing, found)
        for standing in (*front.members, *front.beaten, *front.infeasible)
    }
    figure = go.Figure(_edge(front, told, across, up))
    groups = (
        ("over a limit", [*front.infeasible], {"color": _RED, "symbol": "x", "size": 8}),
        ("beaten", [*front.beaten], {"color": _GREY, "symbol": "circle", "size": 8}),
        ("front", [*front.members], {"color": _BLUE, "symbol": "circle", "size": 11}),
        ("baseline", [s for s in (front.baseline,) if s], {"color": _ORANGE, "symbol": "diamond", "size": 13}),
        (
            "chosen",
            [s for s in (chosen,) if s],
            {"color": _GREEN, "symbol": "circle-open", "size": 20, "line_width": 3},
        ),
    )
    for name, standings, marker in groups:
        if not standings:
            continue
        wide, high = ([told[s.trial][index].estimate for s in standings] for index in (across, up))
        with_bars = name in ("front", "baseline")
        figure.add_trace(
            go.Scatter(
                x=[value.center for value in wide],
                y=[value.center for value in high],
                error_x=_bars(wide) if with_bars else None,
                error_y=_bars(high) if with_bars else None,
                mode="markers",
                marker=marker,
                name=name,
                text=[_hover(front, s, told[s.trial][up]) for s in standings],
                hovertemplate="%{text}<br>%{x:.4g}, %{y:.4g}<extra></extra>",
            )
        )
    wide, high = ([numbers[index].estimate for numbers in told.values()] for index in (across, up))
    figure.update_xaxes(title_text=_title(front.goals[across]), range=_span(wide))
    figure.update_yaxes(title_text=_title(front.goals[up]), range=_span(high))
    return _html(figure, "front", 460)


def _edge(front: Front, told: Mapping[int, tuple[Number, ...]], across: int, up: int) -> go.Scatter:
    """A line through the members whose centre no other member's beats; the rest are there since noise cannot tell."""
    signs = [1 if front.goals[index].maximize else -1 for index in (across, up)]
    numbers = [told[member.trial] for member in front.members]
    places = [(found[across].estimate.center, found[up].estimate.center) for found in numbers]
    best, steps = -math.inf, list[tuple[float, float]]()
    for x, y in sorted(places, key=lambda place: (-signs[0] * place[0], -place[1])):
        if signs[1] * y > best:
            best = signs[1] * y
            steps.append((x, y))
    return go.Scatter(
        x=[x for x, _ in steps],
        y=[y for _, y in steps],
        mode="lines",
        line={"width": 1, "dash": "dot", "color": _BLUE},
        hoverinfo="skip",
        showlegend=False,
    )


def _title(goal: Objective) -> str:
    name = goal.name.replace("_", " ") + "<br>" if goal.name else ""
    return f"{name}{goal.at} [{goal.metric.unit}]"


def _hover(front: Front, standing: Standing, number: Number) -> str:
    launches = counted(number.estimate.launches, "launch")
    made_of = f"confirmed by {launches}" if number.confirmed else launches
    if standing.is_baseline or front.baseline is None:
        return f"trial {standing.trial}: baseline, {made_of}"
    pairs = standing.candidate.differs_from(front.baseline.candidate).items()
    return f"trial {standing.trial}, {made_of}<br>" + "<br>".join(f"{name} = {spell(now)}" for name, (_, now) in pairs)


def ablation_figure(found: Ablation) -> str | None:
    """What the winner loses without each setting, per objective, with intervals; None when nothing was compared."""
    rows = [row for row in found.rows if row.kind is AblationKind.LEAVE_ONE_OUT and row.effects]
    if not rows:
        return None
    figure = go.Figure()
    for place, total in enumerate(found.total):
        effects = [next((e for e in row.effects if e.objective == total.objective), None) for row in rows]
        middle = [0.0 if e is None or e.change is None else e.change * 100 for e in effects]
        up = [0.0 if e is None or e.high is None or e.change is None else (e.high - e.change) * 100 for e in effects]
        down = [0.0 if e is None or e.low is None or e.change is None else (e.change - e.low) * 100 for e in effects]
        figure.add_trace(
            go.Bar(
                y=[row.setting for row in rows],
                x=middle,
                orientation="h",
                name=total.objective,
                marker={"color": _LINES[(place + 1) % len(_LINES)]},
                error_x={"type": "data", "symmetric": False, "array": up, "arrayminus": down, "thickness": 1},
            )
        )
    figure.update_layout(barmode="group")
    figure.update_xaxes(title_text="what the setting adds to the winner [%]", zeroline=True, zerolinecolor="#374151")
    figure.update_yaxes(autorange="reversed", automargin=True)
    return _html(figure, "ablation", 180 + 60 * len(rows))


def load_figure(curves: Sequence[Curve]) -> str | None:
    """Throughput and latencies against concurrency, then against arrivals, each in a drawing of its own.

    None when no load has a number.
    """
    drawn = "".join(_load_panel(curves, shown, scale) for scale in _SCALES for shown in SHOWN.items())
    return f'<div id="figure-load" class="panels">{drawn}</div>' if drawn else None


@dataclass(frozen=True, slots=True)
class _Scale:
    """What lies across: levels or rates."""

    name: str
    title: str
    place: Callable[[LoadPoint], float | None]


_SCALES = (
    _Scale("load", "requests at once", lambda load: load.level),
    _Scale("arrivals", "arrivals [req/s]", lambda load: load.rate),
)


def _load_panel(curves: Sequence[Curve], shown: tuple[Metric, str], scale: _Scale) -> str:
    """One metric, one line per configuration; empty when none has a number."""
    metric, title = shown
    figure = go.Figure()
    seen: dict[float, list[Estimate]] = {}
    for curve, color in zip(curves, _LINES, strict=False):
        points = curve.points.get(metric, {})
        drawn = [(x, load, value) for load, value in points.items() if (x := scale.place(load)) is not None]
        if not drawn:
            continue
        places, loads, values = zip(*drawn, strict=True)
        for x, value in zip(places, values, strict=True):
            seen.setdefault(x, []).append(value)
        figure.add_trace(
            go.Scatter(
                x=places,
                y=[value.center for value in values],
                error_y=_bars(values),
                mode="lines+markers",
                line={"color": color},
                name=curve.name,
                text=[str(load) for load in loads],
                showlegend=True,
                hovertemplate="%{text}: %{y:.4g}<extra>%{fullData.name}</extra>",
            )
        )
    if not seen:
        return ""
    ticks = {"tickmode": "array", "tickvals": sorted(seen), "ticktext": [f"{x:.12g}" for x in sorted(seen)]}
    figure.update_xaxes(title_text=scale.title, type="log", **ticks)
    figure.update_yaxes(title_text=title, range=[0, _span([value for values in seen.values() for value in values])[1]])
    return _html(figure, f"{scale.name}-{metric.value}", 360)

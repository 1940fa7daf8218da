"""Throughput and latencies against load: one curve per finalist, which table and drawing show alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tuner.domain.front import Estimate, Standing
from tuner.domain.load import LoadPoint
from tuner.domain.measurement import Metric
from tuner.domain.proof import Confirmation
from tuner.domain.study import AttemptRecord
from tuner.domain.trial import Purpose
from tuner.export.report_facts import Table
from tuner.export.report_proof import estimate
from tuner.export.standings import estimates_by_load, launches_by_candidate

SHOWN: Mapping[Metric, str] = {
    Metric.OUTPUT_TOK_S: "output [tok/s]",
    Metric.TTFT_P50_MS: "TTFT, median [ms]",
    Metric.TPOT_P50_MS: "time per token, median [ms]",
}
"""Metric → its title."""


@dataclass(frozen=True, slots=True)
class Curve:
    """One configuration against load.

    Attributes:
        standing: the configuration.
        launches: how many stand behind it.
        confirmed: whether these are the confirmation's launches alone.
        points: metric → load → estimate, in the order of loads.
    """

    standing: Standing
    launches: int
    confirmed: bool
    points: Mapping[Metric, Mapping[LoadPoint, Estimate]]

    @property
    def name(self) -> str:
        """`baseline` or `trial 7`."""
        return "baseline" if self.standing.is_baseline else f"trial {self.standing.trial}"


def curves_of(
    attempts: Sequence[AttemptRecord], finalists: Sequence[Standing], confirmation: Confirmation | None
) -> tuple[Curve, ...]:
    """Curves of what was measured; a configuration that was confirmed is shown with those launches alone."""
    groups = launches_by_candidate([a for a in attempts if a.purpose is not Purpose.VERIFY])
    curves = []
    for standing in finalists:
        arm = None if confirmation is None else confirmation.arm_of(standing.candidate)
        trials = standing.trials if arm is None else arm.trials
        own = [a for a in groups.get(standing.candidate.fingerprint, ()) if a.trial in trials]
        points = {metric: found for metric in SHOWN if (found := estimates_by_load(own, metric, groups))}
        if points:
            curves.append(Curve(standing, len(own), arm is not None, points))
    return tuple(curves)


def load_words(curves: Sequence[Curve]) -> str:
    """What the curves are made of."""
    confirmed = [curve.name for curve in curves if curve.confirmed]
    text = "Mean over launches, with 95 % intervals from launch to launch"
    return f"{text}; of {' and '.join(confirmed)} the confirmation's launches alone." if confirmed else f"{text}."


def load_table(curves: Sequence[Curve]) -> Table:
    """One row per configuration and load."""
    rows = []
    for curve in curves:
        for load in sorted({load for found in curve.points.values() for load in found}):
            values = [curve.points.get(metric, {}).get(load) for metric in SHOWN]
            cells = ["–" if value is None else estimate(value) for value in values]
            rows.append((curve.name, str(curve.launches), str(load), *cells))
    columns = ("configuration", "launches", "load", *SHOWN.values())
    return Table(columns, tuple(rows), numbers=tuple(range(1, len(columns))), empty="no load has a number")

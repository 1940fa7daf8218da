"""Bench results as tables and as a picture: one row per load and metric."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from tuner.domain.measurement import LevelResult, Metric

COLUMNS = (
    "level",
    "rate",
    "in_flight",
    "metric",
    "unit",
    "center",
    "low",
    "high",
    "spread_kind",
    "repeats",
    "samples",
    "valid",
    "prompt_tokens",
    "cached_share",
    "client_cpu_share",
    "client_lag_ms",
    "warnings",
)


def rows(levels: Sequence[LevelResult]) -> list[dict[str, object]]:
    """One row per load and metric; a load without numbers gives one row without a metric."""
    found: list[dict[str, object]] = []
    for level in levels:
        common: dict[str, object] = {
            **level.load.document,
            "in_flight": level.in_flight,
            "valid": level.valid,
            "prompt_tokens": level.prompt_tokens,
            "cached_share": level.cached_share,
            "client_cpu_share": level.client_cpu_share,
            "client_lag_ms": level.client_lag_ms,
            "warnings": " ".join(level.warnings),
        }
        if not level.measurements:
            found.append({column: common.get(column) for column in COLUMNS})
        found += [{**common, **row.document, "repeats": len(row.repeats)} for row in level.measurements]
    return found


def bench_csv(levels: Sequence[LevelResult]) -> str:
    """The rows as CSV with a header."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows(levels))
    return text.getvalue()


def write_parquet(levels: Sequence[LevelResult], path: Path) -> None:
    """The rows as a parquet file."""
    import pandas as pd

    frame = pd.DataFrame(rows(levels), columns=list(COLUMNS))
    frame.astype({"level": "Int64", "in_flight": "Int64"}).to_parquet(path, index=False)


def write_plot(levels: Sequence[LevelResult], path: Path, title: str) -> None:
    """Latency over throughput, one point per valid load, as one HTML file that needs no network."""
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    valid = [level for level in levels if level.valid]
    shown = (Metric.TTFT_P50_MS, Metric.TTFT_P99_MS, Metric.TPOT_P50_MS, Metric.ITL_P99_MS)
    figure = make_subplots(rows=1, cols=2, subplot_titles=("time to first token", "time per token"))
    for metric in shown:
        points = [
            (speed, value, str(level.load))
            for level in valid
            if (speed := level.value(Metric.OUTPUT_TOK_S)) is not None and (value := level.value(metric)) is not None
        ]
        if not points:
            continue
        speeds, values, labels = zip(*points, strict=True)
        column = 1 if metric in (Metric.TTFT_P50_MS, Metric.TTFT_P99_MS) else 2
        figure.add_trace(
            go.Scatter(x=speeds, y=values, text=labels, name=metric.value, mode="lines+markers+text"), row=1, col=column
        )
    figure.update_traces(textposition="top center")
    figure.update_xaxes(title_text="output tok/s", rangemode="tozero")
    figure.update_yaxes(title_text="ms", rangemode="tozero")
    figure.update_layout(title=title, template="plotly_white")
    figure.write_html(path, include_plotlyjs=True)

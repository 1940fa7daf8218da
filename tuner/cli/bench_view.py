"""What `tuner bench` shows: the levels as they come, the table at the end, documents and files."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tuner.cli.bench_options import warning_words
from tuner.cli.output import console, out, print_json
from tuner.cli.wording import level_document, measurement_document
from tuner.domain.measurement import LevelResult, Metric
from tuner.domain.warnings import WarningCode
from tuner.domain.workload import Workload
from tuner.trial.measure_events import LevelProgress

_SHOWN = (
    ("tok/s", Metric.OUTPUT_TOK_S),
    ("decode tok/s", Metric.DECODE_TOK_S),
    ("TTFT p50 ms", Metric.TTFT_P50_MS),
    ("p99", Metric.TTFT_P99_MS),
    ("ITL p50 ms", Metric.ITL_P50_MS),
    ("p99", Metric.ITL_P99_MS),
    ("TPOT p50 ms", Metric.TPOT_P50_MS),
)


class Form(StrEnum):
    """How results are written; also the suffix of such a file."""

    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"


class BenchView:
    """Levels as they are measured: a table that grows on a terminal, elsewhere one line per part and level."""

    def __init__(self) -> None:
        self.on_terminal = False
        self._levels: list[LevelResult] = []
        self._now = "asking the server …"
        self._told: set[tuple[object, ...]] = set()

    def progressed(self, progress: LevelProgress) -> None:
        """Take where the measurement is."""
        self._now = str(progress)
        part = (progress.stage, progress.load, progress.repeat)
        if not self.on_terminal and part not in self._told:
            self._told.add(part)
            console().print(self._now)

    def measured(self, level: LevelResult) -> None:
        """Take a level."""
        self._levels.append(level)
        if not self.on_terminal:
            shown = (f"{title} {_cell(level, metric)}" for title, metric in _SHOWN[:3])
            console().print(f"{level.load}: {', '.join(shown)}")

    def __rich__(self) -> RenderableType:
        now = Text(f"▸ {self._now}", style="cyan")
        return Group(_table(self._levels), now) if self._levels else now


@contextmanager
def bench_view() -> Iterator[BenchView]:
    """A view that draws itself while the block runs. The load runs in other processes, which drawing does not delay."""
    view = BenchView()
    if not console().is_terminal:
        yield view
        return
    view.on_terminal = True
    with Live(view, console=console(), refresh_per_second=4, transient=True):
        yield view


def write(
    levels: Sequence[LevelResult], form: Form, output: Path | None, workload: Workload, told: dict[str, Any]
) -> None:
    """Write results.

    Args:
        levels: what was measured.
        form: how.
        output: a file, or None for stdout; never None for parquet.
        workload: what was sent.
        told: what else the JSON document says.
    """
    if form is Form.JSON:
        sent = {"workload": workload.model_dump(mode="json")}
        document = told | sent | {"levels": [_document(level) for level in levels]}
        if output is None:
            print_json(document)
        else:
            output.write_text(json.dumps(document, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    elif form is Form.CSV:
        from tuner.export.bench import bench_csv

        text = bench_csv(levels)
        if output is None:
            sys.stdout.write(text)
        else:
            output.write_text(text, encoding="utf-8")
    else:
        from tuner.export.bench import write_parquet

        assert output is not None
        write_parquet(levels, output)


def _document(level: LevelResult) -> dict[str, Any]:
    return {**level_document(level), "measurements": [measurement_document(row) for row in level.measurements]}


def print_levels(levels: Sequence[LevelResult]) -> None:
    """The table for people, then what went wrong and what to be careful about."""
    out().print(_table(levels))
    for level in levels:
        for text, number in level.errors.items():
            console().print(f"{level.load}: {number} × {text}", style="red")
    for code in dict.fromkeys(code for level in levels for code in level.warnings):
        where = ", ".join(str(level.load) for level in levels if code in level.warnings)
        console().print(f"{where}: {warning_words(WarningCode(code))}", style="yellow")
    console().print("± is the 95 % interval within this launch; another launch may differ by more")


def _table(levels: Sequence[LevelResult]) -> Table:
    table = Table()
    for title in ("load", *(title for title, _ in _SHOWN), "requests"):
        table.add_column(title, justify="left" if title == "load" else "right")
    for level in levels:
        cells = [_cell(level, metric) for _, metric in _SHOWN]
        table.add_row(str(level.load), *cells, f"{level.completed}/{level.asked}", style=None if level.valid else "red")
    return table


def _cell(level: LevelResult, metric: Metric) -> str:
    row = next((m for m in level.measurements if m.metric is metric), None)
    if row is None:
        return "–"
    if row.low is None or row.high is None:
        return f"{row.center:.4g}"
    return f"{row.center:.4g} ±{(row.high - row.low) / 2 / row.center:.0%}" if row.center else "0"

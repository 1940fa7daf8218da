"""Every measurement as a row: one per measured launch, load and metric, in full precision; settings as `knob <name>`.

A long study has hundreds of thousands of rows. They are written as its launches come, so that memory holds the text and
never the rows.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice

import pandas as pd
import pyarrow as pa
import pyarrow.parquet

from tuner.domain.measurement import Measured
from tuner.domain.study import AttemptRecord

_TYPES: Mapping[str, str] = {
    "trial": "int64",
    "attempt": "int64",
    "purpose": "string",
    "block": "Int64",
    "engine": "string",
    "fingerprint": "string",
    "simulated": "bool",
    "started_at": "float64",
    "level": "Int64",
    "rate": "float64",
    "metric": "string",
    "unit": "string",
    "center": "float64",
    "low": "float64",
    "high": "float64",
    "spread_kind": "string",
    "repeats": "int64",
    "samples": "int64",
    "warnings": "string",
}
"""Column → type; `Int64` is a whole number that may be missing."""
_GROUP = 500
"""Launches of a parquet file's row group."""

COLUMNS = tuple(_TYPES)

Table = Callable[[Iterable[AttemptRecord], Sequence[str]], bytes]


def measurements_csv(attempts: Iterable[AttemptRecord], settings: Sequence[str]) -> bytes:
    """The table as text.

    Args:
        attempts: launches; those that were not measured give no row.
        settings: names of all knobs that any of them sets.
    """
    content = io.BytesIO()
    text = io.TextIOWrapper(content, encoding="utf-8", newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_columns(settings))
    for attempt in attempts:
        writer.writerows(_rows(attempt, settings))
    text.flush()
    return content.getvalue()


def measurements_parquet(attempts: Iterable[AttemptRecord], settings: Sequence[str]) -> bytes:
    """The same as a parquet file."""
    types = dict(zip(_columns(settings), (*_TYPES.values(), *("string" for _ in settings)), strict=True))
    empty = pd.DataFrame({name: pd.Series(dtype=kind) for name, kind in types.items()})
    schema = pa.Schema.from_pandas(empty, preserve_index=False)
    content = io.BytesIO()
    with pa.parquet.ParquetWriter(content, schema) as writer:
        launches = iter(attempts)
        while group := list(islice(launches, _GROUP)):
            columns = list(zip(*(row for attempt in group for row in _rows(attempt, settings)), strict=True))
            if columns:
                arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
                writer.write_batch(pa.record_batch(arrays, schema=schema))
    return content.getvalue()


TABLES: Mapping[str, Table] = {"csv": measurements_csv, "parquet": measurements_parquet}
"""Name of a format → what makes it."""


def _columns(settings: Sequence[str]) -> tuple[str, ...]:
    return (*COLUMNS, *(f"knob {name}" for name in settings))


def _rows(attempt: AttemptRecord, settings: Sequence[str]) -> Iterator[tuple[object, ...]]:
    """The rows of one launch, in the order of the columns."""
    outcome = None if attempt.report is None else attempt.report.outcome
    if not isinstance(outcome, Measured):
        return
    launch = {
        "trial": attempt.trial,
        "attempt": attempt.attempt,
        "purpose": attempt.purpose.value,
        "block": attempt.block,
        "engine": attempt.candidate.engine,
        "fingerprint": attempt.candidate.fingerprint,
        "simulated": outcome.simulated,
        "started_at": attempt.started_at,
    }
    of_measurement = COLUMNS[len(launch) :]
    values = [_text(attempt.candidate.values.get(name)) for name in settings]
    for level in outcome.levels:
        warnings = " ".join(level.warnings)
        for row in level.measurements:
            known = {**row.document, "repeats": len(row.repeats), "warnings": warnings}
            yield (*launch.values(), *(known[column] for column in of_measurement), *values)


def _text(value: object) -> str | None:
    """Settings as text: a column of mixed types fits no parquet column."""
    return None if value is None else str(value)

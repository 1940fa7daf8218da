"""Every measurement as a row, in text and in a parquet file."""

from __future__ import annotations

import io
from collections.abc import Sequence

import pandas as pd
import pytest
from support import findings

from tuner.domain.study import AttemptRecord
from tuner.export.measurement_table import COLUMNS, TABLES

READERS = {"csv": pd.read_csv, "parquet": pd.read_parquet}
SETTINGS = ("nccl_proto", "custom_all_reduce", "decode_steps")


@pytest.fixture(params=["csv", "parquet"])
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def table(form: str, attempts: Sequence[AttemptRecord]) -> pd.DataFrame:
    return READERS[form](io.BytesIO(TABLES[form](iter(attempts), SETTINGS)))


def test_rows_hold_every_measurement_of_every_measured_launch_in_full_precision(form: str) -> None:
    frame = table(form, findings.attempts())
    assert len(frame) == 11 * 3 * 4
    row = frame[(frame["trial"] == 7) & (frame["level"] == 128) & (frame["metric"] == "output_tok_s")].iloc[0]
    assert (row["center"], row["purpose"], row["block"], row["knob nccl_proto"]) == (2321.0, "confirm", 1, "LL")


def test_a_study_without_any_launch_has_the_columns_alone(form: str) -> None:
    frame = table(form, [])
    assert (len(frame), tuple(frame)) == (0, (*COLUMNS, *(f"knob {name}" for name in SETTINGS)))


def test_both_formats_hold_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.export.measurement_table._GROUP", 3)
    text, packed = (TABLES[form](iter(findings.attempts()), SETTINGS) for form in ("csv", "parquet"))
    assert pd.read_parquet(io.BytesIO(packed)).to_csv(index=False) == text.decode()


def test_whole_numbers_stay_whole_where_some_are_missing() -> None:
    text = TABLES["csv"](iter(findings.attempts()), SETTINGS).decode()
    blocks = {line.split(",")[COLUMNS.index("block")] for line in text.splitlines()[1:]}
    assert blocks == {"", "1", "2", "3"}

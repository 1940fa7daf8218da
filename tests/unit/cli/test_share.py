"""Shares on the command line."""

from __future__ import annotations

import pytest
import typer

from tuner.cli.options import share


@pytest.mark.parametrize(("text", "found"), [("1%", 0.01), ("0.5 %", 0.005), ("0.02", 0.02), (" 10% ", 0.1)])
def test_a_share_is_read_with_or_without_percent_sign(text: str, found: float) -> None:
    assert share(text) == pytest.approx(found)


@pytest.mark.parametrize("text", ["", "%", "0", "1", "100%", "-1%", "nan", "inf", "one"])
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        share(text)

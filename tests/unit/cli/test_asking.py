"""Asking before launches: on a terminal, unless `--yes` says that nobody wants to be asked."""

from __future__ import annotations

import io
import sys

import pytest

from tuner.cli.asking import ask
from tuner.errors import Stopped


class Typed(io.StringIO):
    """What somebody types at a terminal, or what a pipe brings."""

    def __init__(self, text: str, *, terminal: bool) -> None:
        super().__init__(text)
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


@pytest.mark.parametrize("text", ["n\n", "no\n"])
def test_a_no_stops_before_anything_is_launched(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Typed(text, terminal=True))
    with pytest.raises(Stopped, match="nothing was started"):
        ask("Start?", yes=False)


def test_enter_is_a_yes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", Typed("\n", terminal=True))
    ask("Start?", yes=False)
    said = capsys.readouterr()
    assert "Start? [Y/n]" in said.err
    assert said.out.strip() == "", "data alone goes there"


@pytest.mark.parametrize(("yes", "terminal"), [(True, True), (False, False), (True, False)])
def test_nobody_is_asked_with_yes_or_without_a_terminal(
    yes: bool, terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", Typed("n\n", terminal=terminal))
    ask("Start?", yes=yes)

"""Lines of text on a terminal and in a pipe."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator

import pytest
from rich.text import Text

from tuner.cli.output import out, print_hanging

WORDS = [f"--engine-flag-{number}" for number in range(20)]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def fresh() -> Iterator[None]:
    out.cache_clear()
    yield
    out.cache_clear()


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("columns", [40, 80, 100])
def test_a_narrow_terminal_breaks_long_lines_between_words_below_their_beginning(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    print_hanging(Text("warn"), [", ".join(WORDS), f"→ use {WORDS[0]}"])
    lines = screen.getvalue().splitlines()
    assert max(map(len, lines)) <= columns
    assert " ".join(line[6:].strip() for line in lines) == f"{', '.join(WORDS)} → use {WORDS[0]}"
    assert [line[:6] for line in lines] == ["warn  ", *["      "] * (len(lines) - 1)]


@pytest.mark.usefixtures("fresh")
def test_a_pipe_keeps_lines_whole(capsys: pytest.CaptureFixture[str]) -> None:
    print_hanging(Text("warn"), [", ".join(WORDS), "→ advice"])
    out().print(" ".join(WORDS), markup=False)
    assert capsys.readouterr().out.splitlines() == [f"warn  {', '.join(WORDS)}", "      → advice", " ".join(WORDS)]

"""Lines of text on a terminal and in a pipe."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator

import pytest
from rich.table import Table
from rich.text import Text

from tuner.cli.output import console, out, print_hanging, print_numbers_and_words

WORDS = [f"--engine-flag-{number}" for number in range(20)]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def fresh() -> Iterator[None]:
    for kept in (out, console):
        kept.cache_clear()
    yield
    for kept in (out, console):
        kept.cache_clear()


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
@pytest.mark.parametrize(("columns", "lines_of_a_row"), [(70, 2), (100, 2), (140, 1)])
def test_where_numbers_leave_no_room_for_a_configuration_it_stands_below_them_unbroken(
    columns: int, lines_of_a_row: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    table = Table(box=None, pad_edge=False)
    for title in ("trials", "tok/s", "against the baseline", "tok/s", "against the baseline", "configuration"):
        table.add_column(title, overflow="fold")
    configuration = "attention_backend=TRITON_ATTN, cuda_graph=FULL"
    table.add_row("36", "301.1 ±1.73", "+8.2 % [+8.0, +8.4]", "17,925 ±1,062", "+9.6 % [+0.7, +19.4]", configuration)
    print_numbers_and_words(table, words=1)
    lines = Text.from_ansi(screen.getvalue()).plain.splitlines()
    assert max(map(len, lines)) <= columns
    assert all(sum(words in line for line in lines) == 1 for words in (configuration, "[+8.0, +8.4]", "17,925 ±1,062"))
    assert sum("36" in line for line in lines) == lines_of_a_row


@pytest.mark.usefixtures("fresh")
def test_a_pipe_keeps_lines_whole(capsys: pytest.CaptureFixture[str]) -> None:
    print_hanging(Text("warn"), [", ".join(WORDS), "→ advice"])
    out().print(" ".join(WORDS), markup=False)
    assert capsys.readouterr().out.splitlines() == [f"warn  {', '.join(WORDS)}", "      → advice", " ".join(WORDS)]


@pytest.mark.usefixtures("fresh")
def test_a_place_in_a_file_is_no_emoji_and_brackets_are_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    out().print("space.yaml:100:28 values[2] is [red]")
    table = Table(box=None)
    table.add_row("runs:100:1", "[bold]")
    out().print(table)
    console().print("space.yaml:1234:5")
    captured = capsys.readouterr()
    assert captured.out.split() == ["space.yaml:100:28", "values[2]", "is", "[red]", "runs:100:1", "[bold]"]
    assert captured.err.strip() == "space.yaml:1234:5"

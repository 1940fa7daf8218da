"""Reading shell text: quoting, variables and exports, without running anything."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tuner.spec.command.lexer import ShellSyntaxError
from tuner.spec.command.shell import expand_text, read_script


def argv(text: str, known: Mapping[str, str] | None = None) -> list[str]:
    """Words of the last command."""
    return list(read_script(text, known=known).commands[-1].argv)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a  b\tc", ["a", "b", "c"]),
        ("a 'b c' \"d e\" f\\ g", ["a", "b c", "d e", "f g"]),
        ("a '' \"\"", ["a", "", ""]),
        ("a --x='{\"k\": [1, 2]}'", ["a", '--x={"k": [1, 2]}']),
        ('a "{\\"k\\": 1}"', ["a", '{"k": 1}']),
        ("a 'it'\\''s'", ["a", "it's"]),
        ("a \\\n  b \\  \n  c", ["a", "b", "c"]),
        ("a b # c d", ["a", "b"]),
        ("a b#c", ["a", "b#c"]),
        ("a > log 2>&1 b < in", ["a", "b"]),
        ("a &> log", ["a"]),
        ("a 2 >log", ["a", "2"]),
        ("a $ b", ["a", "$", "b"]),
        ("a {1,2}", ["a", "{1,2}"]),
        ("a $'x y'", ["a", "x y"]),
    ],
)
def test_words(text: str, words: list[str]) -> None:
    assert argv(text) == words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("X=1; a $X ${X}2 '$X' \\$X", ["a", "1", "12", "$X", "$X"]),
        ('X="1  2"; a $X "$X"', ["a", "1", "2", "1  2"]),
        ('X=" b "; a p$X"q"', ["a", "p", "b", "q"]),
        ("X=; a $X b ${X}", ["a", "b"]),
        ('X=; a "$X"', ["a", ""]),
        ("a ${X:-d} ${X-e} ${X:=f}", ["a", "d", "e", "f"]),
        ('a ${X:-"b c"}', ["a", "b", "c"]),
        ("a ${X:-${Y:-z}}", ["a", "z"]),
        ("X=; a ${X:-d} ${X-d}b", ["a", "d", "b"]),
        ("X=1; a ${X:+--flag} ${Y:+--other}", ["a", "--flag"]),
        ("X=1; X=2; a $X", ["a", "2"]),
        ("X=1; X+=2; a $X", ["a", "12"]),
        ("export X=1 Y=$X; a $X $Y", ["a", "1", "1"]),
        ("X=(b 'c d'); X+=(e); a \"${X[@]}\" ${X[0]}", ["a", "b", "c d", "e", "b"]),
        ('X=()\na "${X[@]}" b', ["a", "b"]),
        ("X=1; unset X; a ${X:-gone}", ["a", "gone"]),
    ],
)
def test_variables(text: str, words: list[str]) -> None:
    assert argv(text) == words


@pytest.mark.parametrize(
    ("text", "gap"),
    [
        ("a $X", "X"),
        ("a ${X}", "X"),
        ('a "p${X}q"', "X"),
        ("a ${X:?must be set}", "X"),
        ("a $(nproc)", "$(nproc)"),
        ("a `nproc`", "`nproc`"),
        ("a $((1 + 2))", "$((1 + 2))"),
        ("X=b.txt; a ${X%.txt}", "X"),
        ("a $1", "1"),
        ('a "$@"', "@"),
        ("a <model>", "<model>"),
    ],
)
def test_what_has_no_value_is_reported_and_left_as_it_is(text: str, gap: str) -> None:
    script = read_script(text)
    assert script.unresolved == [gap]
    assert gap in script.commands[-1].argv[1] or script.commands[-1].argv[1].startswith("$")


def test_only_exported_variables_reach_the_program() -> None:
    script = read_script("A=1\nB=2\nexport B\nexport C=3\ndeclare -x D=4\nset -a\nE=5\nF=6 run\n")
    assert script.exported == {"B": "2", "C": "3", "D": "4", "E": "5"}
    assert script.commands[-1].env == {"F": "6"}


def test_parameters_take_the_place_of_at() -> None:
    script = read_script('exec a --x "$@" --y', parameters=["1", "b c"])
    assert script.commands[0].argv == ("exec", "a", "--x", "1", "b c", "--y")


def test_an_assignment_in_a_branch_does_not_replace_what_is_known() -> None:
    script = read_script('X=1\nif [ -n "$Y" ]; then X=2; Z=3; fi\na $X $Z\n')
    assert script.branches
    assert script.commands[-1].argv == ("a", "1", "3")
    assert not script.commands[-1].conditional


def test_commands_inside_branches_are_marked() -> None:
    script = read_script("if true; then a 1; else a 2; fi; while x; do b; done; c")
    marked = {command.argv[0]: command.conditional for command in script.commands}
    assert (marked["a"], marked["b"], marked["c"]) == (True, True, False)


@pytest.mark.parametrize("text", ["a 'b", 'a "b', "a ${b", "a $(b", "a `b", "x=(a b"])
def test_quotes_and_braces_without_an_end(text: str) -> None:
    with pytest.raises(ShellSyntaxError, match="line 1 has no end"):
        read_script(text)


def test_texts_without_quoting_rules_are_filled_in_too() -> None:
    text = '{"a": ${A:-0.6}, "b": "${B}", "c": "$C\\n"}'
    assert expand_text(text, {"C": "x"}) == ('{"a": 0.6, "b": "${B}", "c": "x\\n"}', ["B"])


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1), min_size=1, max_size=5
    )
)
def test_quoted_words_come_back_as_they_were(words: list[str]) -> None:
    assert argv(shlex.join(["a", *words])) == ["a", *words]

"""When two servers' greedy answers are the same, and how much difference is no fault."""

from __future__ import annotations

import pytest

from tuner.domain.output import Answer, OutputCheck, OutputReference, compare


def answer(text: str, logprob: float = -1.0, rivals: dict[int, dict[str, float]] | None = None) -> Answer:
    """One token per character."""
    pieces = tuple(text)
    tops = tuple({piece: logprob, **(rivals or {}).get(index, {})} for index, piece in enumerate(pieces))
    return Answer(text, pieces, (logprob,) * len(pieces), tops)


def test_equal_answers_agree_fully() -> None:
    found = compare([answer("abcd")], [answer("abcd")], tie=0.1)
    assert (found.share, found.drift, found.compared, found.different, found.excused) == (1.0, 0.0, 4, 0, 0)


def test_everything_after_an_unexcused_difference_counts_as_different() -> None:
    found = compare([answer("abcd")], [answer("aXcd")], tie=0.1)
    assert (found.share, found.different) == (0.25, 1)


def test_another_token_is_excused_where_the_reference_was_almost_undecided() -> None:
    reference = answer("abcd", rivals={1: {"X": -1.05}})
    found = compare([reference], [answer("aXyz")], tie=0.1)
    assert (found.share, found.compared, found.excused, found.different) == (1.0, 1, 1, 0)


def test_a_token_that_the_reference_thought_much_less_likely_is_not_excused() -> None:
    reference = answer("abcd", rivals={1: {"X": -1.5}})
    assert compare([reference], [answer("aXyz")], tie=0.1).different == 1


def test_an_answer_cut_short_differs() -> None:
    assert compare([answer("abcd")], [answer("ab")], tie=9.0).share == 0.5


def test_the_drift_is_that_of_the_same_tokens_alone() -> None:
    found = compare([answer("abcd", -1.0)], [answer("abXX", -1.5)], tie=0.0)
    assert found.drift == pytest.approx(0.5)


def test_without_log_probabilities_texts_are_compared_letter_by_letter() -> None:
    found = compare([Answer("hello")], [Answer("help!")], tie=1.0)
    assert (found.share, found.drift) == (0.6, None)


def test_answers_whose_tokens_are_listed_differently_are_compared_letter_by_letter() -> None:
    reference = answer("abcd", rivals={3: {"X": -1.0}})
    numbers = tuple(f"token_id:{number}" for number in range(4))
    for other in (Answer("abcX", numbers, (-2.0,) * 4), Answer("abcX")):
        for pair in ((reference, other), (other, reference)):
            found = compare(pair[:1], pair[1:], tie=0.1)
            assert (found.share, found.drift, found.different) == (0.75, None, 1)


def test_pieces_of_characters_are_told_apart_by_their_numbers() -> None:
    first, second = (Answer("\N{REPLACEMENT CHARACTER}", (f"token_id:{number}",), (-1.0,)) for number in (7, 8))
    assert compare([first], [first], tie=0.1).share == 1.0
    assert compare([first], [second], tie=0.1).share == 0.0


def test_the_answer_that_agrees_least_is_named() -> None:
    assert compare([answer("abcd"), answer("abcd")], [answer("abcX"), answer("Xbcd")], tie=0.0).worst == 1


def test_a_baseline_that_disagrees_with_itself_widens_the_tolerance() -> None:
    check = OutputCheck(agreement=0.8, logprob_drift=0.1)
    steady, shaky = OutputReference((), ()), OutputReference((), (), own_alone=0.5, own_loaded=0.25, own_drift=0.2)
    assert (steady.least_share(check, loaded=False), steady.most_drift(check)) == (0.8, 0.1)
    assert (shaky.least_share(check, loaded=False), shaky.least_share(check, loaded=True)) == (0.4, 0.2)
    assert shaky.most_drift(check) == pytest.approx(0.6)

"""Answers depend on the prompt and on nothing else."""

from __future__ import annotations

import statistics

from tuner.engines.simulated.tokens import VOCABULARY, Answer, count_tokens, seed_of


def test_the_same_prompt_has_the_same_answer_and_another_prompt_another() -> None:
    one, same, other = (Answer(seed_of(prompt)).text(0, 40) for prompt in ("a b", "a b", "a c"))
    assert one == same != other


def test_an_answer_in_pieces_is_the_answer() -> None:
    answer = Answer(seed_of([1, 2, 3]))
    assert answer.text(0, 5) + answer.text(5, 9) == answer.text(0, 9)


def test_each_word_is_a_token_of_its_own() -> None:
    assert len(set(VOCABULARY)) == 256
    assert all(word.isascii() and '"' not in word for word in VOCABULARY)


def test_corruption_touches_its_share_of_the_tokens() -> None:
    right, wrong = Answer(7), Answer(7, corrupts=0.2)
    differing = sum(right.token(index) != wrong.token(index) for index in range(2000))
    assert 300 < differing < 500


def test_log_probabilities_are_negative_and_drift_as_told() -> None:
    clean, drifting = Answer(7), Answer(7, logprob_drift=0.1)
    values = [clean.logprob(index) for index in range(2000)]
    assert max(values) < 0
    errors = [drifting.logprob(index) - value for index, value in enumerate(values) if drifting.logprob(index) < -1e-3]
    assert 0.08 < statistics.stdev(errors) < 0.12


def test_prompts_are_counted_by_ids_or_words() -> None:
    assert count_tokens([5] * 512) == 512
    assert count_tokens("two words") == 2

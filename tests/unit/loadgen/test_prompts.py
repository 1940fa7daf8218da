"""Prompts: exact lengths, no shared prefixes unless asked for, seeds that separate everything that must differ."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from random import Random
from statistics import fmean, stdev
from typing import Any

import pytest
from tokenizers import Tokenizer, models

from tuner.domain.workload import Lengths, Workload
from tuner.errors import UserError
from tuner.loadgen.dialect import Dialect, variants
from tuner.loadgen.prompts import Prompts, draw_length
from tuner.loadgen.vocabulary import COMMON_IDS, Vocabulary

IDS = Dialect("m", "completions", Vocabulary(COMMON_IDS), as_ids=True)


@pytest.fixture
def tokenizer() -> Vocabulary:
    """One token a character, spaces included."""
    letters = Tokenizer(models.BPE({letter: n for n, letter in enumerate("abcd ")}, []))
    return Vocabulary(range(5), letters)


def bodies(workload: Workload, count: int, *, seed: int = 1, part: str = "c8/r1", dialect: Dialect = IDS) -> list[Any]:
    made = Prompts(workload, seed).conversations(count, dialect, part)
    return [json.loads(call.body) for conversation in made for call in conversation]


def test_prompts_have_exactly_the_tokens_asked_for() -> None:
    assert {len(body["prompt"]) for body in bodies(Workload(input_tokens=77), 20)} == {77}


def test_no_two_requests_share_even_their_first_token() -> None:
    firsts = [body["prompt"][0] for body in bodies(Workload(input_tokens=16), 2000)]
    assert len(set(firsts)) == 2000


def test_a_small_vocabulary_is_told_apart_within_few_tokens() -> None:
    small = Dialect("m", "completions", Vocabulary(range(10)), as_ids=True)
    starts = {tuple(body["prompt"][:4]) for body in bodies(Workload(input_tokens=8), 300, dialect=small)}
    assert len(starts) > 290


@pytest.mark.parametrize("other", [{"seed": 2}, {"part": "c8/r2"}, {"part": "c32/r1"}])
def test_launch_repeat_and_level_each_change_every_prompt(other: dict[str, Any]) -> None:
    first, second = bodies(Workload(), 10), bodies(Workload(), 10, **other)
    assert all(a["prompt"][3:] != b["prompt"][3:] for a in first for b in second)


def test_the_same_seed_gives_the_same_prompts() -> None:
    assert bodies(Workload(), 5) == bodies(Workload(), 5)


def test_a_shared_prefix_is_shared_within_its_group_only() -> None:
    work = Workload.model_validate(
        {"input_tokens": 40, "shape": {"kind": "shared_prefix", "prefix_tokens": 30, "groups": 2}}
    )
    found = [body["prompt"] for body in bodies(work, 6)]
    assert {len(prompt) for prompt in found} == {40}
    assert found[0][:30] == found[2][:30] == found[4][:30]
    assert found[0][:30] != found[1][:30]
    assert len({tuple(prompt[30:]) for prompt in found}) == 6


def test_turns_repeat_the_history_and_stay_on_one_slot() -> None:
    work = Workload.model_validate(
        {"input_tokens": 10, "output_tokens": 5, "shape": {"kind": "multi_turn", "turns": 3}}
    )
    (talk, *_) = Prompts(work, 1).conversations(3, IDS, "x")
    prompts = [json.loads(call.body)["prompt"] for call in talk]
    assert [len(prompt) for prompt in prompts] == [10, 25, 40]
    assert all(later[: len(earlier)] == earlier for earlier, later in combinations(prompts, 2))
    assert [call.turn for call in talk] == [0, 1, 2]


def test_chat_turns_alternate_roles() -> None:
    work = Workload.model_validate({"input_tokens": 4, "api": "chat", "shape": {"kind": "multi_turn", "turns": 2}})
    chat = Dialect("m", "chat", Vocabulary(COMMON_IDS), as_ids=False)
    last = bodies(work, 2, dialect=chat)[1]
    assert [message["role"] for message in last["messages"]] == ["user", "assistant", "user"]


def test_a_model_of_one_token_still_gets_prompts() -> None:
    one = Dialect("m", "completions", Vocabulary([7]), as_ids=True)
    assert bodies(Workload(input_tokens=3), 2, dialect=one)[1]["prompt"] == [7, 7, 7]


@pytest.mark.parametrize(
    ("kind", "spread"), [("uniform", 0.5), ("normal", 0.2), ("lognormal", 0.5)], ids=lambda value: str(value)
)
def test_drawn_lengths_have_the_mean_and_spread_asked_for(kind: Any, spread: float) -> None:
    random = Random(7)
    drawn = [draw_length(1000, Lengths(kind=kind, spread=spread), random) for _ in range(4000)]
    expected = spread * 1000 / (3**0.5 if kind == "uniform" else 1)
    assert fmean(drawn) == pytest.approx(1000, rel=0.04)
    assert stdev(drawn) == pytest.approx(expected, rel=0.08)


def test_drawn_lengths_keep_their_bounds() -> None:
    random = Random(1)
    lengths = Lengths(kind="normal", spread=1.0, min=5, max=12)
    assert {draw_length(10, lengths, random) for _ in range(500)} <= set(range(5, 13))


class TestFiles:
    def test_sharegpt_gives_first_questions_and_the_length_of_their_answers(self, tmp_path: Path) -> None:
        file = tmp_path / "talks.json"
        turns = [{"from": "human", "value": "How?"}, {"from": "gpt", "value": "x" * 40}]
        file.write_text(json.dumps([{"conversations": turns}, {"conversations": turns[:1]}]))
        work = Workload.model_validate({"shape": {"kind": "sharegpt", "path": str(file)}})
        (body,) = bodies(work, 1)
        assert (body["prompt"], body["max_tokens"], body["min_tokens"]) == ("How?", 10, 10)

    def test_sharegpt_begins_with_the_first_question_that_was_answered(self, tmp_path: Path) -> None:
        file = tmp_path / "talks.json"
        talk = [("system", "Be kind."), ("gpt", "Hello!"), ("human", "Why?"), ("gpt", "y" * 80), ("human", "Oh.")]
        turns = [{"from": who, "value": said} for who, said in talk]
        file.write_text(json.dumps([{"conversations": turns}]))
        work = Workload.model_validate({"shape": {"kind": "sharegpt", "path": str(file)}})
        (body,) = bodies(work, 1)
        assert (body["prompt"], body["max_tokens"]) == ("Why?", 20)

    def test_a_tokenizer_counts_answers_exactly(self, tmp_path: Path, tokenizer: Vocabulary) -> None:
        file = tmp_path / "talks.json"
        answer = "abab cdcd abab"
        turns = [{"from": "human", "value": "How?"}, {"from": "gpt", "value": answer}]
        file.write_text(json.dumps([{"conversations": turns}]))
        work = Workload.model_validate({"shape": {"kind": "sharegpt", "path": str(file)}})
        ((call,),) = Prompts(work, 1, tokenizer).conversations(1, IDS, "x")
        assert call.output_tokens == len(answer)  # one token a character; four to a token would have been 3

    def test_the_bounds_of_lengths_hold_for_files_too(self, tmp_path: Path) -> None:
        file = tmp_path / "prompts.jsonl"
        rows = [{"token_ids": [1] * n, "output_tokens": 10 * n} for n in (1, 2, 3, 4)]
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        fields: dict[str, Any] = {"shape": {"kind": "jsonl", "path": str(file)}, "input_lengths": {"max": 3}}
        found = bodies(Workload.model_validate(fields | {"output_lengths": {"max": 20}}), 3)
        assert sorted((len(b["prompt"]), b["max_tokens"]) for b in found) == [(1, 10), (2, 20), (3, 20)]
        file.write_text(json.dumps(rows[3]))
        with pytest.raises(UserError, match="1 prompt, none with at most 3 tokens"):
            Prompts(Workload.model_validate(fields), 1)

    def test_jsonl_takes_text_ids_and_messages_as_the_api_allows(self, tmp_path: Path) -> None:
        file = tmp_path / "prompts.jsonl"
        file.write_text(
            '{"prompt": "a", "output_tokens": 3}\n\n{"token_ids": [1, 2]}\n{"messages": [{"content": "x"}]}\n'
        )
        work = Workload.model_validate({"output_tokens": 9, "shape": {"kind": "jsonl", "path": str(file)}})
        assert sorted((str(b["prompt"]), b["max_tokens"]) for b in bodies(work, 2)) == [("[1, 2]", 9), ("a", 3)]

    def test_using_a_prompt_again_is_noticed(self, tmp_path: Path) -> None:
        file = tmp_path / "one.jsonl"
        file.write_text('{"prompt": "a"}\n')
        prompts = Prompts(Workload.model_validate({"shape": {"kind": "jsonl", "path": str(file)}}), 1)
        prompts.conversations(1, IDS, "x")
        assert not prompts.repeated
        prompts.conversations(1, IDS, "y")
        assert prompts.repeated

    @pytest.mark.parametrize(
        ("kind", "text", "words"),
        [
            ("jsonl", "{oops", ":1: not JSON"),
            ("jsonl", '{"prompt": "a"}\n{"text": "b"}', ":2: needs prompt"),
            ("jsonl", '{"prompt": "a", "output_tokens": 0}', "output_tokens must be"),
            ("jsonl", "[1]", "expected an object"),
            ("jsonl", "", "holds none"),
            ("jsonl", '{"messages": [{"content": "x"}]}', "API takes"),
            ("sharegpt", "{}", "list of conversations"),
            ("sharegpt", "[", "not JSON"),
        ],
    )
    def test_what_is_wrong_with_a_file_is_said_with_its_place(
        self, tmp_path: Path, kind: str, text: str, words: str
    ) -> None:
        file = tmp_path / "data"
        file.write_text(text)
        with pytest.raises(UserError, match=words):
            Prompts(Workload.model_validate({"shape": {"kind": kind, "path": str(file)}}), 1)

    def test_a_missing_file_is_the_users_error(self) -> None:
        with pytest.raises(UserError, match="cannot be read"):
            Prompts(Workload.model_validate({"shape": {"kind": "jsonl", "path": "/nowhere"}}), 1)


class TestDialects:
    def test_the_most_exact_way_of_asking_comes_first(self) -> None:
        first = next(variants("m", "completions", Vocabulary(COMMON_IDS)))
        body = json.loads(first.body([1, 2], 9))
        assert body["ignore_eos"] is True
        assert (body["max_tokens"], body["min_tokens"], body["stream"]) == (9, 9, True)
        assert body["stream_options"] == {"include_usage": True}

    def test_forbidding_the_end_token_is_tried_only_when_it_is_known(self) -> None:
        def biased(vocabulary: Vocabulary) -> list[Dialect]:
            return [d for d in variants("m", "completions", vocabulary) if d.lengths == ("logit_bias",)]

        assert not biased(Vocabulary(COMMON_IDS))
        (first, *_) = biased(Vocabulary(range(5), eos_ids=(3,)))
        assert json.loads(first.body("a", 1))["logit_bias"] == {"3": -100}

    def test_no_request_carries_tools(self) -> None:
        assert "tools" not in json.loads(IDS.body([1], 1))

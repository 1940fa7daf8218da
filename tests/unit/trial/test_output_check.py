"""What answers are checked with: prompts that differ, half of them as long as the workload's."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from tuner.domain.workload import Workload
from tuner.loadgen.vocabulary import Vocabulary
from tuner.trial.output_check import prompts_for


def bytewise() -> Vocabulary:
    """A tokenizer that has learnt no word: English takes it a token per character."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={char: index for index, char in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return Vocabulary(range(len(alphabet)), tokenizer)


@pytest.mark.parametrize("input_tokens", [1, 40, 64, 128, 1000])
@pytest.mark.parametrize("count", [2, 8, 40])
def test_prompts_differ_whatever_the_length(input_tokens: int, count: int) -> None:
    for vocabulary in (bytewise(), Vocabulary.guess(str(Path("no such model")))):
        prompts = prompts_for(Workload(input_tokens=input_tokens), count, vocabulary)
        assert len(set(prompts)) == count


@pytest.mark.parametrize("input_tokens", [64, 100, 128, 1000])
def test_every_other_prompt_is_as_long_as_the_workloads_but_for_a_word(input_tokens: int) -> None:
    vocabulary = bytewise()
    assert vocabulary.tokenizer is not None
    prompts = prompts_for(Workload(input_tokens=input_tokens), 8, vocabulary)
    lengths = [len(vocabulary.tokenizer.encode(prompt).ids) for prompt in prompts]
    for long in lengths[1::2]:
        assert input_tokens - len("lighthouse ") < long <= input_tokens
    assert max(lengths[::2]) < 64

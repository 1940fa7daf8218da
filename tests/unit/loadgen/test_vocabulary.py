"""Token ids and text from a tokenizer, or without one."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from tuner.errors import UserError
from tuner.loadgen.vocabulary import COMMON_IDS, Vocabulary


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small byte-pair tokenizer, as a model folder has it."""
    folder = tmp_path_factory.mktemp("model")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    random = Random(1)
    words = ["".join(random.choices("abcdefgh", k=random.randint(2, 7))) for _ in range(400)]
    tokenizer.train_from_iterator([" ".join(random.choices(words, k=50)) for _ in range(60)], trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps({"eos_token_id": 1}))
    return folder


def test_special_tokens_are_never_drawn(model: Path) -> None:
    assert not {0, 1} & set(Vocabulary.load(str(model)).ids)


def test_the_end_token_is_read_from_the_model(model: Path) -> None:
    assert Vocabulary.load(str(model)).eos_ids == (1,)


@pytest.mark.parametrize("count", [1, 7, 64, 300])
def test_text_has_exactly_the_tokens_asked_for(model: Path, count: int) -> None:
    vocabulary = Vocabulary.load(str(model))
    assert vocabulary.tokenizer is not None
    for seed in range(5):
        text = vocabulary.text(count, Random(seed))
        assert len(vocabulary.tokenizer.encode(text, add_special_tokens=False).ids) == count


def test_without_a_tokenizer_text_begins_with_its_serial_number() -> None:
    text = Vocabulary(COMMON_IDS).text(5, Random(1), [1234])
    assert text.startswith("1234 ")
    assert len(text.split()) == 5


def test_a_model_name_that_is_no_folder_gives_common_ids() -> None:
    assert Vocabulary.guess("org/model").ids is COMMON_IDS


def test_a_tokenizer_that_cannot_be_read_is_an_error_only_when_it_was_asked_for(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    assert Vocabulary.guess(str(tmp_path)).ids is COMMON_IDS
    with pytest.raises(UserError, match="cannot be loaded"):
        Vocabulary.load(str(tmp_path))
    with pytest.raises(UserError, match=r"no tokenizer\.json"):
        Vocabulary.load(str(tmp_path / "nothing"))

"""Token ids that random prompts are drawn from, and text of an exact token count."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from tuner.errors import UserError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# Nearly every vocabulary has these ids, above special tokens and single bytes; very small ones have only the second.
COMMON_IDS = range(1000, 8000)
SMALL_IDS = range(32, 256)

_SHORT_WORDS = """
time year people way day man thing woman life child world school state family student group country problem hand part
place case week company system program question work government number night point home water room mother area money
story fact month lot right study book eye job word business issue side kind head house service friend father power hour
game line end member law car city community name
"""
_WORDS = tuple(_SHORT_WORDS.split())
_ADJUSTMENTS = 12
_CHARACTERS_PER_TOKEN = 4  # the usual rule of thumb for English text


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What prompts can be made of.

    Attributes:
        ids: usable token ids.
        tokenizer: the model's tokenizer, or None when there is none.
        eos_ids: ids that end a generation, as far as known.
    """

    ids: Sequence[int]
    tokenizer: Tokenizer | None = field(default=None, repr=False)
    eos_ids: tuple[int, ...] = ()

    @classmethod
    def load(cls, path: str) -> Vocabulary:
        """Read a `tokenizer.json`, or the one in a model folder.

        Raises:
            UserError: when there is none or it cannot be read.
        """
        from tokenizers import Tokenizer

        place = Path(path)
        file = place / "tokenizer.json" if place.is_dir() else place
        if not file.is_file():
            raise UserError(f"{path}: no tokenizer.json there", hint="give the model's folder, or leave tokenizer out")
        try:
            tokenizer = Tokenizer.from_file(str(file))
        except Exception as error:  # tokenizers raises bare Exception for anything it cannot read
            raise UserError(f"{file}: the tokenizer cannot be loaded: {error}") from error
        special = {number for number, token in tokenizer.get_added_tokens_decoder().items() if token.special}
        ids = [number for number in sorted(tokenizer.get_vocab().values()) if number not in special]
        if not ids:
            raise UserError(f"{file}: the vocabulary holds only special tokens")
        return cls(ids, tokenizer, _eos_ids(file.parent, tokenizer))

    @classmethod
    def guess(cls, model: str) -> Vocabulary:
        """The vocabulary of a model given as a local folder, or ids that nearly every vocabulary has."""
        if (Path(model) / "tokenizer.json").is_file():
            try:
                return cls.load(model)
            except UserError:
                return ANY_VOCABULARY
        return ANY_VOCABULARY

    def count(self, text: str) -> int:
        """Tokens of a text by the tokenizer; without one only about right."""
        if self.tokenizer is None:
            return len(text) // _CHARACTERS_PER_TOKEN
        return len(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def text(self, count: int, random: Random, opening: Sequence[int] = ()) -> str:
        """Text of `count` tokens by the tokenizer; without one, of that many short words (then only about right).

        Args:
            count: tokens wanted.
            random: where the tokens come from.
            opening: ids that it begins with, before it is turned into text.
        """
        if self.tokenizer is None:
            lead = [str(number) for number in opening]  # a serial number that no other text begins with
            return " ".join([*lead, *random.choices(_WORDS, k=max(0, count - len(lead)))])
        ids = [*opening, *random.choices(self.ids, k=max(0, count - len(opening)))]
        best, text = None, ""
        for _ in range(_ADJUSTMENTS):
            # Decoding and encoding need not give the same ids back; lengthen or shorten until the count fits.
            found = self.tokenizer.decode(ids)
            missing = count - self.count(found)
            if best is None or abs(missing) < best:
                best, text = abs(missing), found
            if missing == 0:
                break
            ids = ids[:missing] if missing < 0 else [*ids, *random.choices(self.ids, k=missing)]
        return text


ANY_VOCABULARY = Vocabulary(COMMON_IDS)
"""For a model whose tokenizer is not known."""


def _eos_ids(folder: Path, tokenizer: Tokenizer) -> tuple[int, ...]:
    for name in ("generation_config.json", "config.json"):
        try:
            found = json.loads((folder / name).read_text(encoding="utf-8")).get("eos_token_id")
        except (OSError, ValueError, AttributeError):
            continue
        if isinstance(found, int):
            return (found,)
        if isinstance(found, list):
            return tuple(number for number in found if isinstance(number, int))
    known = (tokenizer.token_to_id(word) for word in ("</s>", "<|endoftext|>", "<|im_end|>", "<|eot_id|>"))
    return tuple(number for number in known if number is not None)

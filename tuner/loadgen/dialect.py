"""How one server wants a request written: the same words for warm-up and for measurement."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from tuner.loadgen.vocabulary import COMMON_IDS, SMALL_IDS, Vocabulary

Prompt = str | list[int] | list[dict[str, str]]
"""Text, token ids, or chat messages."""

_PATHS = {"completions": "/v1/completions", "chat": "/v1/chat/completions"}

# Each makes all answers equally long on some server; the first that works is used for everything.
_LENGTHS = (("ignore_eos", "min_tokens"), ("ignore_eos",), ("min_tokens",), ("logit_bias",), ())


@dataclass(frozen=True, slots=True)
class Dialect:
    """One way to write requests.

    Attributes:
        model: name that the server knows the model by.
        api: `completions` or `chat`.
        vocabulary: where prompts come from.
        as_ids: prompts are lists of token ids (exact by construction); else text.
        lengths: request fields that make the answer exactly as long as asked.
        usage: ask for token counts at the end of the stream.
    """

    model: str
    api: Literal["completions", "chat"]
    vocabulary: Vocabulary
    as_ids: bool
    lengths: tuple[str, ...] = _LENGTHS[0]
    usage: bool = True

    @property
    def path(self) -> str:
        """Request path."""
        return _PATHS[self.api]

    @property
    def exact_input(self) -> bool:
        """True when prompts have exactly the asked number of tokens, a chat's template aside."""
        return self.as_ids or self.vocabulary.tokenizer is not None

    def body(self, prompt: Prompt, output_tokens: int) -> bytes:
        """The JSON body of one request. Greedy, so that sampling costs the same everywhere."""
        fields: dict[str, Any] = {"model": self.model}
        if self.api == "chat":
            fields["messages"] = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        else:
            fields["prompt"] = prompt
        fields |= {"max_tokens": output_tokens, "temperature": 0.0, "stream": True}
        if self.usage:
            fields["stream_options"] = {"include_usage": True}
        for name in self.lengths:
            if name == "ignore_eos":
                fields[name] = True
            elif name == "min_tokens":
                fields[name] = output_tokens
            else:
                fields[name] = {str(number): -100 for number in self.vocabulary.eos_ids}
        return json.dumps(fields, separators=(",", ":")).encode()


def variants(model: str, api: Literal["completions", "chat"], vocabulary: Vocabulary) -> Iterator[Dialect]:
    """Every way to write requests, the most exact first."""
    forms: list[tuple[Vocabulary, bool]] = [(vocabulary, False)]
    if api == "completions":
        forms.insert(0, (vocabulary, True))
        if vocabulary.ids is COMMON_IDS:
            forms.insert(1, (Vocabulary(SMALL_IDS), True))
    for words, as_ids in forms:
        for usage in (True, False):
            for lengths in _LENGTHS:
                if lengths == ("logit_bias",) and not words.eos_ids:
                    continue
                yield Dialect(model, api, words, as_ids, lengths, usage)

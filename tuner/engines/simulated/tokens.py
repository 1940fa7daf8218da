"""Answers that depend on the prompt only: the same prompt gets the same tokens on every launch and at any load."""

from __future__ import annotations

import hashlib
from array import array
from dataclasses import dataclass

_ONSETS = ("b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v", "z", "sh", "br")
_VOWELS = ("a", "e", "i", "o", "u", "ai", "ou", "ee", "an", "en", "in", "on", "ar", "er", "or", "ul")
VOCABULARY = tuple(f" {onset}{vowel}" for onset in _ONSETS for vowel in _VOWELS)
"""256 words, each one token, plain ASCII without anything that JSON would escape."""

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def _mix(state: int) -> int:
    """One output of SplitMix64 (Steele, Lea, Flood 2014)."""
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
    return state ^ (state >> 31)


@dataclass(frozen=True, slots=True)
class Answer:
    """The endless answer to one prompt.

    Attributes:
        seed: what the prompt hashes to.
        corrupts: share of tokens that come out wrong (a settings' fault, the same on each launch).
        logprob_drift: spread of the log-probability error that the settings cause.
    """

    seed: int
    corrupts: float = 0.0
    logprob_drift: float = 0.0

    def token(self, index: int) -> int:
        """Token id number `index`, 0…255."""
        value = _mix((self.seed + (index + 1) * _GOLDEN) & _MASK)
        if self.corrupts and (value >> 32) / (1 << 32) < self.corrupts:
            value ^= 0x5A
        return value & 0xFF

    def text(self, start: int, end: int) -> str:
        """The text of tokens `start` (included) to `end` (excluded)."""
        return "".join([VOCABULARY[self.token(index)] for index in range(start, end)])

    def logprob(self, index: int) -> float:
        """Log-probability of token `index`."""
        value = _mix((self.seed ^ 0xD1B54A32D192ED03) + index * _GOLDEN & _MASK)
        error = ((value >> 40) / (1 << 24) - 0.5) * 3.46 * self.logprob_drift  # uniform of that deviation
        return round(min(-1e-4, -0.05 - (value & 0xFFFF) / 0xFFFF * 1.5 + error), 6)

    @property
    def natural_length(self) -> int:
        """Tokens until the answer ends by itself (where `ignore_eos` is off)."""
        return 40 + _mix(self.seed ^ 0xABCDEF) % 400


def seed_of(prompt: str | list[int]) -> int:
    """Hash of a prompt; a text and a list of token ids never collide on purpose."""
    payload = prompt.encode() if isinstance(prompt, str) else b"ids:" + array("q", prompt).tobytes()
    return int.from_bytes(hashlib.blake2b(payload, digest_size=8).digest())


def count_tokens(prompt: str | list[int]) -> int:
    """Prompt length: its ids, or for text its words between blanks (an own, trivial tokenizer)."""
    return max(1, len(prompt) if isinstance(prompt, list) else len(prompt.split()))

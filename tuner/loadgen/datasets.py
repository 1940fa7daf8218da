"""Prompts from files: ShareGPT-like JSON and JSONL."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from tuner.domain.values import counted
from tuner.domain.workload import DatasetShape
from tuner.errors import UserError
from tuner.loadgen.dialect import Prompt
from tuner.loadgen.vocabulary import Vocabulary

_ASKING = ("human", "user")


@dataclass(frozen=True, slots=True)
class DatasetPrompt:
    """One prompt of a file and, where the file says, how many tokens its answer had."""

    prompt: Prompt
    output_tokens: int | None = None


def read_dataset(
    shape: DatasetShape, api: str, vocabulary: Vocabulary, most_tokens: int | None = None
) -> list[DatasetPrompt]:
    """Every usable prompt of a file, in file order.

    Args:
        shape: the file.
        api: `completions` or `chat`.
        vocabulary: counts the tokens of texts.
        most_tokens: longer prompts are left out; None for no bound.

    Raises:
        UserError: the file cannot be read, is not of its kind, or holds no prompt that this API can send.
    """
    try:
        text = Path(shape.path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{shape.path}: cannot be read: {error}") from error
    found = list(_sharegpt(shape.path, text, vocabulary) if shape.kind == "sharegpt" else _jsonl(shape.path, text))
    usable = [item for item in found if _fits(item.prompt, api)]
    short = [item for item in usable if most_tokens is None or _tokens(item.prompt, vocabulary) <= most_tokens]
    if not short:
        why = "it holds none"
        if usable:
            why = f"{counted(len(usable), 'prompt')}, none with at most {most_tokens} tokens"
        elif found:
            why = f"{counted(len(found), 'prompt')}, none of a kind that the {api} API takes"
        raise UserError(f"{shape.path}: no prompt to send: {why}")
    return short


def _tokens(prompt: Prompt, vocabulary: Vocabulary) -> int:
    if isinstance(prompt, str):
        return vocabulary.count(prompt)
    return sum(vocabulary.count(str(part["content"])) if isinstance(part, dict) else 1 for part in prompt)


def _fits(prompt: Prompt, api: str) -> bool:
    if isinstance(prompt, str):
        return bool(prompt)
    is_messages = bool(prompt) and isinstance(prompt[0], dict)
    return bool(prompt) and is_messages == (api == "chat")


def _sharegpt(path: str, text: str, vocabulary: Vocabulary) -> Iterator[DatasetPrompt]:
    """The first question of each conversation that is followed by an answer."""
    try:
        entries = json.loads(text)
    except ValueError as error:
        raise UserError(f"{path}: not JSON: {error}") from error
    if not isinstance(entries, list):
        raise UserError(f"{path}: a ShareGPT file is a list of conversations")
    for entry in entries:
        turns = entry.get("conversations") if isinstance(entry, dict) else None
        if not isinstance(turns, list):
            continue
        for asked, answered in pairwise(turn for turn in turns if isinstance(turn, dict)):
            question, answer = asked.get("value"), answered.get("value")
            if asked.get("from", "human") in _ASKING and isinstance(question, str) and isinstance(answer, str):
                if question and answer:
                    yield DatasetPrompt(question, max(1, vocabulary.count(answer)))
                break


def _jsonl(path: str, text: str) -> Iterator[DatasetPrompt]:
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except ValueError as error:
            raise UserError(f"{path}:{number}: not JSON: {error}") from error
        if not isinstance(entry, dict):
            raise UserError(f"{path}:{number}: expected an object with prompt, token_ids or messages")
        yield DatasetPrompt(_jsonl_prompt(path, number, entry), _jsonl_tokens(path, number, entry))


def _jsonl_prompt(path: str, number: int, entry: dict[str, Any]) -> Prompt:
    text, ids, messages = entry.get("prompt"), entry.get("token_ids"), entry.get("messages")
    if isinstance(text, str) and text:
        return text
    if isinstance(ids, list) and ids and all(isinstance(i, int) and not isinstance(i, bool) for i in ids):
        return ids
    if isinstance(messages, list) and messages and all(isinstance(m, dict) and "content" in m for m in messages):
        return messages
    raise UserError(f"{path}:{number}: needs prompt (text), token_ids (numbers) or messages (chat)")


def _jsonl_tokens(path: str, number: int, entry: dict[str, Any]) -> int | None:
    tokens = entry.get("output_tokens")
    if tokens is None:
        return None
    if not isinstance(tokens, int) or isinstance(tokens, bool) or tokens < 1:
        raise UserError(f"{path}:{number}: output_tokens must be a whole number above 0")
    return tokens

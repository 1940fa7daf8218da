"""Prompts from files: ShareGPT-like JSON and JSONL."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.domain.workload import DatasetShape
from tuner.errors import UserError
from tuner.loadgen.dialect import Prompt

_CHARACTERS_PER_TOKEN = 4  # the usual rule of thumb for English text; only used where a file gives an answer as text


@dataclass(frozen=True, slots=True)
class DatasetPrompt:
    """One prompt of a file and, where the file says, how many tokens its answer had."""

    prompt: Prompt
    output_tokens: int | None = None


def read_dataset(shape: DatasetShape, api: str) -> list[DatasetPrompt]:
    """Every usable prompt of a file, in file order.

    Raises:
        UserError: the file cannot be read, is not of its kind, or holds no prompt that this API can send.
    """
    try:
        text = Path(shape.path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{shape.path}: cannot be read: {error}") from error
    found = list(_sharegpt(shape.path, text) if shape.kind == "sharegpt" else _jsonl(shape.path, text))
    usable = [item for item in found if _fits(item.prompt, api)]
    if not usable:
        why = f"its {len(found)} prompts are of a kind that the {api} API does not take" if found else "it holds none"
        raise UserError(f"{shape.path}: no prompt to send: {why}")
    return usable


def _fits(prompt: Prompt, api: str) -> bool:
    if isinstance(prompt, str):
        return bool(prompt)
    is_messages = bool(prompt) and isinstance(prompt[0], dict)
    return bool(prompt) and is_messages == (api == "chat")


def _sharegpt(path: str, text: str) -> Iterator[DatasetPrompt]:
    try:
        entries = json.loads(text)
    except ValueError as error:
        raise UserError(f"{path}: not JSON: {error}") from error
    if not isinstance(entries, list):
        raise UserError(f"{path}: a ShareGPT file is a list of conversations")
    for entry in entries:
        turns = entry.get("conversations") if isinstance(entry, dict) else None
        if not isinstance(turns, list) or len(turns) < 2:
            continue
        first, second = (turn.get("value") if isinstance(turn, dict) else None for turn in turns[:2])
        if isinstance(first, str) and isinstance(second, str) and first and second:
            yield DatasetPrompt(first, max(1, len(second) // _CHARACTERS_PER_TOKEN))


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

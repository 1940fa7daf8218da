"""One generation request: what was asked, and the OpenAI documents that answer it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tuner.engines.simulated.tokens import VOCABULARY, Answer, count_tokens, seed_of

_DEFAULT_MAX_TOKENS = 16
_TOKENS_PER_MESSAGE = 4
_LARGEST_TOKEN_ID = 1 << 31


class BadRequestError(Exception):
    """What the client asked cannot be done; answered with `status`."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.message, self.status = message, status


@dataclass(frozen=True, slots=True)
class Asked:
    """A request for tokens, checked.

    Attributes:
        answer: the endless answer of which `tokens` tokens are given.
        finish_reason: `length`, or `stop` when the answer ends by itself.
        top_logprobs: None unless log-probabilities were asked for.
    """

    chat: bool
    model: str
    prompt_tokens: int
    tokens: int
    finish_reason: str
    answer: Answer
    stream: bool
    include_usage: bool
    usage_in_each_chunk: bool
    top_logprobs: int | None


def parse(body: Any, *, chat: bool, model: str, context_length: int, corrupts: float, logprob_drift: float) -> Asked:
    """Check a request body.

    Raises:
        BadRequestError: with the text for the client.
    """
    if not isinstance(body, Mapping):
        raise BadRequestError("the body must be a JSON object")
    if body.get("model", model) != model:
        raise BadRequestError(f"The model `{body['model']}` does not exist.", 404)
    if body.get("n", 1) != 1:
        raise BadRequestError("only n=1 is simulated")
    prompt, prompt_tokens = _chat_prompt(body) if chat else _completion_prompt(body)
    asked = body.get("max_completion_tokens", body.get("max_tokens"))
    limit = context_length - prompt_tokens
    wanted = (limit if chat else _DEFAULT_MAX_TOKENS) if asked is None else asked
    if not isinstance(wanted, int) or isinstance(wanted, bool) or wanted < 1:
        raise BadRequestError(f"max_tokens must be a positive integer, got {asked!r}")
    if wanted > limit:
        raise BadRequestError(
            f"Requested token count exceeds the model's maximum context length of {context_length} tokens. "
            f"You requested a total of {prompt_tokens + wanted} tokens: {prompt_tokens} tokens from the input messages "
            f"and {wanted} tokens for the completion."
        )
    answer = Answer(seed_of(prompt), corrupts, logprob_drift)
    tokens = wanted if body.get("ignore_eos") else min(wanted, answer.natural_length)
    options = body.get("stream_options") or {}
    return Asked(
        chat=chat,
        model=model,
        prompt_tokens=prompt_tokens,
        tokens=tokens,
        finish_reason="length" if tokens == wanted else "stop",
        answer=answer,
        stream=bool(body.get("stream", False)),
        include_usage=bool(options.get("include_usage")),
        usage_in_each_chunk=bool(options.get("continuous_usage_stats")),
        top_logprobs=_top_logprobs(body, chat=chat),
    )


def _completion_prompt(body: Mapping[str, Any]) -> tuple[str | list[int], int]:
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, list) and prompt and all(type(item) is int for item in prompt):
        if not (min(prompt) >= 0 and max(prompt) < _LARGEST_TOKEN_ID):
            raise BadRequestError("token ids must lie in the vocabulary")
    elif not (isinstance(prompt, str) and prompt):
        raise BadRequestError("prompt must be a text or a list of token ids (one prompt)")
    return prompt, count_tokens(prompt)


def _chat_prompt(body: Mapping[str, Any]) -> tuple[str, int]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(item, Mapping) for item in messages):
        raise BadRequestError("messages must be a list of messages")
    texts = [f"{item.get('role', 'user')}: {_content(item.get('content'))}" for item in messages]
    return "\n".join(texts), sum(count_tokens(text) for text in texts) + _TOKENS_PER_MESSAGE * len(texts)


def _content(content: Any) -> str:
    if isinstance(content, list):
        return " ".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    return str(content or "")


def _top_logprobs(body: Mapping[str, Any], *, chat: bool) -> int | None:
    if chat:
        return int(body.get("top_logprobs") or 0) if body.get("logprobs") else None
    wanted = body.get("logprobs")
    return None if wanted is None or wanted is False else int(wanted)


class Writer:
    """Writes the documents of one answer; cheap per token, since everything constant is encoded once."""

    def __init__(self, asked: Asked, request_id: str) -> None:
        self._asked = asked
        kind = ("chat.completion" if asked.chat else "text_completion", asked.chat and asked.stream)
        self._head = {
            "id": f"{'chatcmpl' if asked.chat else 'cmpl'}-{request_id}",
            "object": kind[0] + (".chunk" if kind[1] else ""),
            "created": int(time.time()),
            "model": asked.model,
        }
        self._prefix = json.dumps(self._head)[:-1].encode() + b', "choices": [{"index": 0, '

    def usage(self, produced: int) -> dict[str, int]:
        """The `usage` object after `produced` tokens."""
        prompt = self._asked.prompt_tokens
        return {"prompt_tokens": prompt, "completion_tokens": produced, "total_tokens": prompt + produced}

    def chunk(self, start: int, end: int, *, last: bool, text: str | None = None) -> bytes:
        """The event for tokens `start` to `end`; `text` replaces what belongs there."""
        asked = self._asked
        words = asked.answer.text(start, end) if text is None else text
        body = f'"delta": {{"content": "{words}"}}' if asked.chat else f'"text": "{words}"'
        logprobs = "null" if asked.top_logprobs is None else json.dumps(self.logprobs(start, end))
        reason = f'"{asked.finish_reason}"' if last else "null"
        usage = f', "usage": {json.dumps(self.usage(end))}' if asked.usage_in_each_chunk else ""
        tail = f'{body}, "logprobs": {logprobs}, "finish_reason": {reason}}}]{usage}}}\n\n'
        return b"data: " + self._prefix + tail.encode()

    def role_chunk(self) -> bytes:
        """The first event of a chat stream, which carries the role and no token."""
        return b"data: " + self._prefix + b'"delta": {"role": "assistant", "content": ""}, "finish_reason": null}]}\n\n'

    def usage_chunk(self, produced: int) -> bytes:
        """The event with the usage and no choice."""
        return f"data: {json.dumps({**self._head, 'choices': [], 'usage': self.usage(produced)})}\n\n".encode()

    def document(self, produced: int) -> dict[str, Any]:
        """The whole answer of a request without `stream`."""
        asked = self._asked
        text = asked.answer.text(0, produced)
        logprobs = None if asked.top_logprobs is None else self.logprobs(0, produced)
        choice: dict[str, Any] = {"index": 0, "logprobs": logprobs, "finish_reason": asked.finish_reason}
        choice |= {"message": {"role": "assistant", "content": text}} if asked.chat else {"text": text}
        return {**self._head, "choices": [choice], "usage": self.usage(produced)}

    def logprobs(self, start: int, end: int) -> dict[str, Any]:
        """Log-probabilities in the shape of the API asked."""
        answer = self._asked.answer
        words = [VOCABULARY[answer.token(index)] for index in range(start, end)]
        values = [answer.logprob(index) for index in range(start, end)]
        if self._asked.chat:
            return {
                "content": [
                    {"token": word, "logprob": value, "bytes": list(word.encode()), "top_logprobs": []}
                    for word, value in zip(words, values, strict=True)
                ]
            }
        offsets = [sum(map(len, words[:index])) for index in range(len(words))]
        tops = [{word: value} for word, value in zip(words, values, strict=True)]
        return {"tokens": words, "token_logprobs": values, "top_logprobs": tops, "text_offset": offsets}

"""Greedy answers of a running server, with log-probabilities: a few questions at a time, and stoppable."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from tuner.domain.output import RIVALS, Answer
from tuner.domain.shortage import own_shortage
from tuner.domain.values import counted

_PATH = "/v1/completions"
_LOOK_EVERY_S = 0.1
_REFUSED = (400, 422)
_BY_NUMBER = "return_tokens_as_token_ids"
"""Asks vLLM for `token_id:17` instead of a token's text. Tokens that are pieces of a character have the same text, and
in a list of rivals by text one of them hides the other. SGLang writes such pieces apart by itself, and ignores this."""


class BadAnswerError(Exception):
    """A question got an error, or something that is no answer; the text says which."""


class WrongAnswerError(Exception):
    """An answer came, and it is wrong whatever the question: empty, cut short, or not a number."""


class TooLateError(Exception):
    """An answer did not come in time."""


class StoppedError(Exception):
    """The caller wanted no more answers."""


@dataclass(frozen=True, slots=True)
class Asking:
    """How questions are put.

    Attributes:
        base_url: `http://host:port`.
        model: name under which the server offers it.
        tokens: answer length.
        timeout_s: longest wait for one answer.
        at_once: requests in flight.
        should_stop: asked ten times a second.
        fixed_length: an end-of-text token does not end the answer, and a shorter one is wrong.
    """

    base_url: str
    model: str
    tokens: int
    timeout_s: float
    at_once: int
    should_stop: Callable[[], bool]
    fixed_length: bool = True


def ask_all(asking: Asking, prompts: Sequence[str]) -> tuple[Answer, ...]:
    """Put every question; answers in the same order.

    Raises:
        BadAnswerError: a request failed.
        OwnShortage: it could not be sent, for want of files, memory or ports.
        WrongAnswerError: an answer is empty, too short, or holds log-probabilities that are none.
        TooLateError: an answer took longer than allowed.
        StoppedError: `should_stop` said so.
    """
    return asyncio.run(_ask_all(asking, prompts))


async def _ask_all(asking: Asking, prompts: Sequence[str]) -> tuple[Answer, ...]:
    gate = asyncio.Semaphore(asking.at_once)
    limits = httpx.Limits(max_connections=asking.at_once)
    # Proxies of the environment are for the outside world; our servers are on this machine.
    async with httpx.AsyncClient(
        base_url=asking.base_url, timeout=asking.timeout_s, limits=limits, trust_env=False
    ) as client:

        async def one(prompt: str) -> Answer:
            async with gate:
                return await _ask(client, asking, prompt)

        tasks = [asyncio.create_task(one(prompt)) for prompt in prompts]
        waiting = set(tasks)
        try:
            while waiting:
                done, waiting = await asyncio.wait(waiting, timeout=_LOOK_EVERY_S, return_when=asyncio.FIRST_EXCEPTION)
                for task in done:
                    task.result()
                if waiting and asking.should_stop():
                    raise StoppedError
        finally:
            for task in waiting:
                task.cancel()
            # Of several that failed together, too: one that nobody asks prints its traceback.
            await asyncio.gather(*tasks, return_exceptions=True)
        return tuple(task.result() for task in tasks)


async def _ask(client: httpx.AsyncClient, asking: Asking, prompt: str) -> Answer:
    body: dict[str, object] = {
        "model": asking.model,
        "prompt": prompt,
        "max_tokens": asking.tokens,
        "temperature": 0.0,
        "ignore_eos": asking.fixed_length,
        "logprobs": RIVALS,
        _BY_NUMBER: True,
    }
    try:
        reply = await client.post(_PATH, json=body)
        # Some modes of the engines (speculative decoding, pipeline stages) give no log-probabilities.
        for unwanted in (_BY_NUMBER, "logprobs"):
            if reply.status_code in _REFUSED:
                body.pop(unwanted)
                reply = await client.post(_PATH, json=body)
        reply.raise_for_status()
        document = reply.json()
    except httpx.TimeoutException as error:
        raise TooLateError(f"POST {_PATH}: no answer within {asking.timeout_s:.0f} s") from error
    except httpx.HTTPStatusError as error:
        raise BadAnswerError(f"POST {_PATH}: {error.response.status_code}: {error.response.text[:200]}") from error
    except (httpx.HTTPError, ValueError) as error:
        raise own_shortage(error) or BadAnswerError(f"POST {_PATH}: {type(error).__name__}: {error}") from error
    answer, count = _read(document)
    if not answer.text and not any(answer.pieces):
        raise WrongAnswerError("an answer is empty")
    if asking.fixed_length and count < asking.tokens:
        raise WrongAnswerError(
            f"an answer ended after {count} of {counted(asking.tokens, 'token')}: {_start(answer.text)}"
        )
    return answer


def _read(document: Any) -> tuple[Answer, int]:
    """The answer, and how many tokens it has."""
    try:
        choice = document["choices"][0]
        text, listed, usage = choice["text"], choice.get("logprobs") or {}, document.get("usage") or {}
        if not isinstance(text, str):
            raise TypeError("the text is none")
        pieces = tuple(map(str, listed.get("tokens") or ()))
        count = int(usage.get("completion_tokens", len(pieces)))
        logprobs, rivals = _logprobs(listed.get("token_logprobs") or ()), _rivals(listed.get("top_logprobs") or ())
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise BadAnswerError(f"POST {_PATH}: no completion in the answer {str(document)[:200]}") from error
    return Answer(text, pieces, logprobs, rivals), count


def _start(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:60] + "…")


def _logprobs(values: Sequence[Any]) -> tuple[float, ...]:
    for value in values:
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise WrongAnswerError(f"the log-probability of a token is {value}: the model computes no numbers")
    return tuple(map(float, values))


def _rivals(tops: Sequence[Any]) -> tuple[Mapping[str, float], ...]:
    return tuple(
        {str(piece): float(value) for piece, value in top.items() if isinstance(value, int | float)} if top else {}
        for top in tops
    )

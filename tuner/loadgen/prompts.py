"""Workload → requests. Everything here happens before the timed part.

Random prompts carry their own serial number in their first tokens, so no two requests of a measurement share a prefix
unless the shape asks for it; the seed of trial, level and repeat goes into all other tokens, so that neither a second
run nor a restarted server with a cache on disk has seen them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import count
from random import Random

from tuner.domain.workload import DatasetShape, Lengths, MultiTurnShape, SharedPrefixShape, Workload
from tuner.loadgen.datasets import DatasetPrompt, read_dataset
from tuner.loadgen.dialect import Dialect, Prompt
from tuner.loadgen.job import Call, Conversation
from tuner.loadgen.vocabulary import ANY_VOCABULARY, Vocabulary


def draw_length(mean: int, lengths: Lengths, random: Random) -> int:
    """One token count."""
    deviation = mean * lengths.spread
    if lengths.kind == "uniform":
        value = random.uniform(mean - deviation, mean + deviation)
    elif lengths.kind == "normal":
        value = random.gauss(mean, deviation)
    elif lengths.kind == "lognormal":
        # The underlying normal for a mean m and a variance v: s² = ln(1 + v/m²), mu = ln m - s²/2.
        variance = math.log1p(lengths.spread**2)
        value = random.lognormvariate(math.log(mean) - variance / 2, math.sqrt(variance))
    else:
        value = mean
    return within(lengths, round(value))


def within(lengths: Lengths, tokens: int) -> int:
    """A token count, kept to the bounds."""
    bounded = max(lengths.min, tokens)
    return bounded if lengths.max is None else min(lengths.max, bounded)


def seeded(*parts: object) -> Random:
    """A generator whose numbers follow from these words alone."""
    return Random("/".join(map(str, parts)))  # noqa: S311  # prompts, not secrets


class Prompts:
    """Makes the requests of a measurement; never the same one twice.

    Args:
        workload: what to make.
        seed: seed of this launch.
        vocabulary: counts the tokens of texts from files.

    Attributes:
        repeated: True once a data set was too short and prompts had to be used again.

    Raises:
        UserError: a data set cannot be read.
    """

    def __init__(self, workload: Workload, seed: int, vocabulary: Vocabulary = ANY_VOCABULARY) -> None:
        self.repeated = False
        self._workload = workload
        self._seed = f"{workload.seed}/{seed}"
        self._serial = count()
        self._order: list[DatasetPrompt] = []
        self._taken = 0
        if isinstance(workload.shape, DatasetShape):
            self._order = read_dataset(workload.shape, workload.api, vocabulary, workload.input_lengths.max)
            seeded(self._seed, "order").shuffle(self._order)

    def conversations(self, requests: int, dialect: Dialect, part: str, first_index: int = 0) -> list[Conversation]:
        """At least `requests` requests, in conversations.

        Args:
            requests: how many are needed.
            dialect: how to write them.
            part: what they are for (`warm-up`, `c32/r1`); goes into the seed.
            first_index: number of the first request.
        """
        random = seeded(self._seed, part)
        numbers = count(first_index)
        made: list[Conversation] = []
        total = 0
        while total < requests:
            turns = self._turns(dialect, random)
            made.append(
                tuple(
                    Call(next(numbers), turn, tokens, dialect.body(prompt, tokens))
                    for turn, (prompt, tokens) in enumerate(turns)
                )
            )
            total += len(made[-1])
        return made

    def _turns(self, dialect: Dialect, random: Random) -> Iterator[tuple[Prompt, int]]:
        work = self._workload
        shape = work.shape
        if isinstance(shape, DatasetShape):
            yield self._from_file(shape, random)
            return
        length = draw_length(work.input_tokens, work.input_lengths, random)
        answer = draw_length(work.output_tokens, work.output_lengths, random)
        serial = next(self._serial)
        if isinstance(shape, SharedPrefixShape):
            shared = seeded(self._seed, "prefix", serial % shape.groups)
            opening = shared.choices(dialect.vocabulary.ids, k=shape.prefix_tokens) + self._mark(dialect, serial)
            yield self._prompt(dialect, max(length, shape.prefix_tokens + 1), random, opening), answer
        elif isinstance(shape, MultiTurnShape):
            yield from self._multi_turn(dialect, shape, serial, random)
        else:
            yield self._prompt(dialect, length, random, self._mark(dialect, serial)), answer

    def _multi_turn(
        self, dialect: Dialect, shape: MultiTurnShape, serial: int, random: Random
    ) -> Iterator[tuple[Prompt, int]]:
        work = self._workload
        history: list[int] = self._mark(dialect, serial)
        messages: list[dict[str, str]] = []
        for turn in range(shape.turns):
            length = draw_length(work.input_tokens, work.input_lengths, random)
            answer = draw_length(work.output_tokens, work.output_lengths, random)
            if dialect.api == "chat":
                opening = history if turn == 0 else []
                messages.append({"role": "user", "content": dialect.vocabulary.text(length, random, opening)})
                yield list(messages), answer
                messages.append({"role": "assistant", "content": dialect.vocabulary.text(answer, random)})
                continue
            fresh = length - (len(history) if turn == 0 else 0)
            history = [*history, *random.choices(dialect.vocabulary.ids, k=max(0, fresh))]
            yield self._prompt(dialect, len(history), random, history), answer
            history = [*history, *random.choices(dialect.vocabulary.ids, k=answer)]

    def _mark(self, dialect: Dialect, serial: int) -> list[int]:
        """The serial number in the base of the vocabulary, last digit first, so that first tokens differ most."""
        ids = dialect.vocabulary.ids
        if len(ids) == 1:
            return [ids[0]]  # a model of one token: all prompts are alike whatever we do
        start = seeded(self._seed).randrange(len(ids))
        digits = [ids[(serial + start) % len(ids)]]
        while (serial := serial // len(ids)) > 0:
            digits.append(ids[serial % len(ids)])
        return digits

    def _prompt(self, dialect: Dialect, length: int, random: Random, opening: Sequence[int]) -> Prompt:
        if not dialect.as_ids:
            return dialect.vocabulary.text(length, random, opening)
        ids = list(opening[:length])
        return ids + random.choices(dialect.vocabulary.ids, k=length - len(ids))

    def _from_file(self, shape: DatasetShape, random: Random) -> tuple[Prompt, int]:
        if self._taken == len(self._order):
            self._taken, self.repeated = 0, True
        found = self._order[self._taken]
        self._taken += 1
        if shape.output_from_file and found.output_tokens is not None:
            return found.prompt, within(self._workload.output_lengths, found.output_tokens)
        return found.prompt, draw_length(self._workload.output_tokens, self._workload.output_lengths, random)

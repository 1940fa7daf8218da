"""Does a configuration still answer as the baseline does? Answers, how two of them agree, and the tolerance.

Kernels are not exact to the bit, so two right servers may choose another token where two are almost equally likely,
and go on differently from there. Answers are therefore compared up to their first difference, which is excused where
the reference itself gave the other token almost the same probability.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, Field

from tuner.domain.numbers import NUMBER, WHOLE
from tuner.domain.written import FILE_MODEL

NUMBERED = "token_id:"
"""What a token begins with that is listed by its number, as vLLM does when asked."""

RIVALS = 5
"""How many of the likeliest tokens are asked for at each position."""

_OWN_DRIFT_FACTOR = 3.0
"""A drift up to so many times the baseline's own from launch to launch is no sign of anything."""


class OutputCheck(BaseModel):
    """How answers are checked against the baseline's.

    Attributes:
        enabled: off measures speed alone, whatever the answers.
        prompts: how many, half of them short and half as long as the workload's.
        tokens: answer length.
        agreement: smallest share of tokens that must be the baseline's, as a share of what the baseline reaches
            against itself from launch to launch.
        logprob_drift: largest mean difference of a token's log-probability (nats); where the baseline differs more
            from itself, three times that. A different token is excused within the same distance.
        questions: JSON-lines file with `question` and `answer`, put to the finalists; the answer must occur in theirs.
    """

    model_config = FILE_MODEL

    enabled: bool = True
    prompts: Annotated[int, Field(ge=2, le=64), WHOLE] = 8
    tokens: Annotated[int, Field(ge=4, le=512), WHOLE] = 32
    agreement: Annotated[float, Field(gt=0, le=1), NUMBER] = 0.8
    logprob_drift: Annotated[float, Field(gt=0), NUMBER] = 0.25
    questions: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """One greedy answer.

    Attributes:
        text: as the server wrote it.
        pieces: its tokens, as text or by number (`token_id:17`); empty where the server does not list them.
        logprobs: log-probability (nats) of each token.
        rivals: at each position the likeliest tokens and their log-probabilities.
    """

    text: str
    pieces: tuple[str, ...] = ()
    logprobs: tuple[float, ...] = ()
    rivals: tuple[Mapping[str, float], ...] = ()

    @property
    def numbered(self) -> bool:
        """Whether its tokens are listed by number."""
        return bool(self.pieces) and all(piece.startswith(NUMBERED) for piece in self.pieces)

    @property
    def text_alone(self) -> Answer:
        """The same without tokens, as a server gives it that does not list them."""
        return Answer(self.text)


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far some answers agree with their references.

    Attributes:
        share: tokens that are the same, of those compared; 1 when nothing could be compared.
        drift: mean difference of the log-probability of same tokens (nats); None without log-probabilities.
        compared: tokens compared: all of an answer, or up to an excused difference.
        excused: answers that differ from some point on where the reference was almost undecided.
        different: answers that differ without excuse.
        worst: place in the list of the answer that agrees least.
    """

    share: float
    drift: float | None
    compared: int
    excused: int = 0
    different: int = 0
    worst: int = 0


def compare(reference: Sequence[Answer], answers: Sequence[Answer], tie: float) -> Agreement:
    """How answers agree with the references at the same places.

    Args:
        reference: what the baseline answered.
        answers: as many.
        tie: a different token is excused when the reference gave it at most this much less log-probability (nats).
    """
    same = compared = excused = different = 0
    drifts: list[float] = []
    worst, lowest = 0, math.inf
    for index, pair in enumerate(zip(reference, answers, strict=True)):
        old, new = _alike(*pair)
        before, after = old.pieces or old.text, new.pieces or new.text
        matched = _common(before, after)
        drifts += [abs(a - b) for a, b in zip(old.logprobs[:matched], new.logprobs[:matched], strict=False)]
        whole = max(len(before), len(after))
        length = whole
        if matched < whole and _is_tie(old, new, matched, tie):
            excused, length = excused + 1, matched
        elif matched < whole:
            different += 1
        same, compared = same + matched, compared + length
        if length and matched / length < lowest:
            worst, lowest = index, matched / length
    return Agreement(
        share=same / compared if compared else 1.0,
        drift=sum(drifts) / len(drifts) if drifts else None,
        compared=compared,
        excused=excused,
        different=different,
        worst=worst,
    )


def _alike(old: Answer, new: Answer) -> tuple[Answer, Answer]:
    """Both with tokens in the same spelling, or both without: characters are compared then."""
    if bool(old.pieces) == bool(new.pieces) and old.numbered == new.numbered:
        return old, new
    return old.text_alone, new.text_alone


def _common(first: Sequence[str], second: Sequence[str]) -> int:
    pairs = zip(first, second, strict=False)
    return next((index for index, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))


def _is_tie(old: Answer, new: Answer, at: int, tie: float) -> bool:
    if at >= len(old.rivals) or at >= len(new.pieces) or at >= len(old.logprobs):
        return False
    other = old.rivals[at].get(new.pieces[at])
    return other is not None and old.logprobs[at] - other <= tie


@dataclass(frozen=True, slots=True)
class OutputReference:
    """What a candidate's answers are held against.

    Attributes:
        prompts: the questions.
        answers: what the baseline answered, in the same order.
        own_alone: how the baseline agrees with itself from launch to launch, one request at a time; the least seen.
        own_loaded: the same under load, against its answers alone.
        own_drift: largest drift between two launches of the baseline (nats).
    """

    prompts: tuple[str, ...]
    answers: tuple[Answer, ...]
    own_alone: float = 1.0
    own_loaded: float = 1.0
    own_drift: float = 0.0

    def least_share(self, check: OutputCheck, *, loaded: bool) -> float:
        """The agreement that is asked for."""
        return check.agreement * (self.own_loaded if loaded else self.own_alone)

    def most_drift(self, check: OutputCheck) -> float:
        """The drift that is allowed (nats)."""
        return max(check.logprob_drift, _OWN_DRIFT_FACTOR * self.own_drift)


@dataclass(frozen=True, slots=True)
class TaskScore:
    """How many questions of the user's own file were answered right."""

    right: int
    asked: int


@dataclass(frozen=True, slots=True)
class OutputReport:
    """What the output check of one launch found.

    Attributes:
        alone: agreement with the reference, one request at a time; None where there was no reference yet.
        loaded: the same with as many requests at once as the highest level has.
        least_share: agreement that was asked for alone; None where nothing was.
        most_drift: drift that was allowed (nats).
        prompts: the questions, kept for launches of a baseline only.
        answers: its answers, one request at a time.
        task: the user's own questions, where they were put.
    """

    alone: Agreement | None = None
    loaded: Agreement | None = None
    least_share: float | None = None
    most_drift: float | None = None
    prompts: tuple[str, ...] = ()
    answers: tuple[Answer, ...] = ()
    task: TaskScore | None = None

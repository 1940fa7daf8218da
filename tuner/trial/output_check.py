"""Does the server still answer right? Asked alone before the load, and under load after it.

The first launch of a baseline gives the reference; its further launches say how far it agrees with itself; every other
launch must agree as well, within the tolerance of the space's `output_check`.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path

from tuner.domain.outcome import Failure, FailureClass, Phase
from tuner.domain.output import Agreement, Answer, OutputReport, TaskScore, compare
from tuner.domain.trial import Purpose, TrialRequest
from tuner.domain.workload import Workload
from tuner.engines.answers import Asking, BadAnswerError, WrongAnswerError, ask_all
from tuner.errors import UserError
from tuner.loadgen.vocabulary import Vocabulary

ANSWERS = "answers.json"
_CALIBRATING = frozenset({Purpose.BASELINE, Purpose.SENTINEL})
_FINALISTS = frozenset({Purpose.CONFIRM, Purpose.VERIFY})
_MOST_AT_ONCE = 64
_LEAST_TIMEOUT_S = 10.0
_TASK_TOKENS = 64
_TOKENS_PER_WORD = 1.5
_SHOWN = 120

# Openings that a language model goes on with; a model of random weights goes on with something, and always the same.
_OPENINGS = (
    "The capital of France is",
    "def fibonacci(n):",
    "Water boils at a temperature of",
    "Once upon a time, in a village by the sea, there lived",
    "The three primary colours are red,",
    "In 1969 the first humans walked on",
    "1, 2, 3, 5, 8, 13,",
    "To bake bread one needs flour, water,",
)
_SENTENCE = "Line {number}: the keeper of the lighthouse noted wind, waves and {count} ships that passed before noon."


class OutputChecker:
    """Puts the questions of one launch and judges the answers.

    Args:
        request: the launch; its `reference` is what answers are held against.
        base_url: of the server.
        model: name under which the server offers it.
        model_path: the model's folder, if it is one: its tokenizer tells how long a prompt is.
        run_dir: gets every question and answer as `answers.json`.
        time_scale: the server's seconds per second of ours.
        should_stop: asked often; True ends the check.
    """

    def __init__(
        self,
        request: TrialRequest,
        *,
        base_url: str,
        model: str,
        model_path: str,
        run_dir: Path,
        time_scale: float,
        should_stop: Callable[[], bool],
    ) -> None:
        self._check = request.space.output_check
        self._request = request
        self._run_dir = run_dir
        limit = max(_LEAST_TIMEOUT_S, request.workload.request_timeout_s / time_scale)
        self._asking = Asking(base_url, model, self._check.tokens, limit, 1, should_stop)
        reference = request.reference
        self._prompts = reference.prompts if reference is not None else self._own_prompts(model_path)
        self._alone: tuple[Answer, ...] = ()
        self.report: OutputReport | None = None

    def alone(self) -> Failure | None:
        """One request at a time; a Failure when the answers are wrong.

        Raises:
            StoppedError: the launch is to end.
            TooLateError: an answer did not come.
        """
        if not self._check.enabled:
            return None
        try:
            self._alone = ask_all(self._asking, self._prompts)
        except (WrongAnswerError, BadAnswerError) as error:
            return _failure(error)
        calibrating = self._request.purpose in _CALIBRATING
        self.report = OutputReport(
            prompts=self._prompts if calibrating else (), answers=self._alone if calibrating else ()
        )
        self._keep("alone", self._alone)
        reference = self._request.reference
        if reference is None:
            return None
        found = compare(reference.answers, self._alone, reference.most_drift(self._check))
        self.report = replace(
            self.report,
            alone=found,
            least_share=reference.least_share(self._check, loaded=False),
            most_drift=reference.most_drift(self._check),
        )
        return self._judged(found, self._alone, loaded=False)

    def loaded(self) -> Failure | None:
        """As many requests at once as the highest level has (64 at most); a Failure when the answers are wrong.

        Raises:
            StoppedError: the launch is to end.
            TooLateError: an answer did not come.
        """
        if not self._check.enabled or self.report is None:
            return None
        at_once = min(max(self._request.workload.levels), _MOST_AT_ONCE)
        wanted = max(at_once, len(self._prompts))
        try:
            answers = ask_all(replace(self._asking, at_once=at_once), list(islice(cycle(self._prompts), wanted)))
            task = self._task()
        except (WrongAnswerError, BadAnswerError) as error:
            return _failure(error, "under load: ")
        self._keep("loaded", answers)
        reference = self._request.reference
        expected = self._alone if reference is None else reference.answers
        tie = self._check.logprob_drift if reference is None else reference.most_drift(self._check)
        found = compare(list(islice(cycle(expected), wanted)), answers, tie)
        self.report = replace(self.report, loaded=found, task=task)
        return self._judged(found, answers, loaded=True)

    def _judged(self, found: Agreement, answers: tuple[Answer, ...], *, loaded: bool) -> Failure | None:
        reference = self._request.reference
        if reference is None or self._request.purpose in _CALIBRATING:
            return None
        least, most = reference.least_share(self._check, loaded=loaded), reference.most_drift(self._check)
        how = "under load" if loaded else "alone"
        worst = found.worst % len(self._prompts)
        evidence = (
            f"asked: {_short(self._prompts[worst])}",
            f"the baseline answered: {_short(reference.answers[worst].text)}",
            f"answered {how}: {_short(answers[found.worst].text)}",
        )
        if found.share < least:
            detail = f"{found.share:.0%} of the tokens are the baseline's {how}, at least {least:.0%} must be"
            return Failure(FailureClass.WRONG_OUTPUT, Phase.SERVING, evidence, detail=detail)
        if found.drift is not None and found.drift > most:
            detail = f"log-probabilities {how} are off by {found.drift:.2f} nats on average, {most:.2f} are allowed"
            return Failure(FailureClass.WRONG_OUTPUT, Phase.SERVING, evidence, detail=detail)
        return None

    def _task(self) -> TaskScore | None:
        """The user's own questions, for finalists."""
        if self._check.questions is None or self._request.purpose not in _FINALISTS:
            return None
        pairs = read_questions(Path(self._check.questions))
        asking = replace(self._asking, at_once=min(len(pairs), _MOST_AT_ONCE), tokens=_TASK_TOKENS, fixed_length=False)
        answers = ask_all(asking, [question for question, _ in pairs])
        right = sum(_holds(answer.text, expected) for answer, (_, expected) in zip(answers, pairs, strict=True))
        return TaskScore(right, len(pairs))

    def _own_prompts(self, model_path: str) -> tuple[str, ...]:
        work = self._request.workload
        vocabulary = Vocabulary.load(work.tokenizer) if work.tokenizer else Vocabulary.guess(model_path)
        return prompts_for(work, self._check.prompts, vocabulary)

    def _keep(self, part: str, answers: tuple[Answer, ...]) -> None:
        file = self._run_dir / ANSWERS
        kept = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        asked = islice(cycle(self._prompts), len(answers))
        kept[part] = [
            {"prompt": prompt, "text": answer.text, "tokens": answer.pieces, "logprobs": answer.logprobs}
            for prompt, answer in zip(asked, answers, strict=True)
        ]
        file.write_text(json.dumps(kept, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def prompts_for(workload: Workload, count: int, vocabulary: Vocabulary) -> tuple[str, ...]:
    """Prompts to check answers with, all different: half of them short, half as long as the workload's."""
    prompts = []
    for index in range(count):
        opening = _OPENINGS[index // 2 % len(_OPENINGS)]
        room = workload.input_tokens - _length(vocabulary, opening) if index % 2 else 0
        before = _long_text(vocabulary, room, start=100 * index)
        is_new = index < 2 * len(_OPENINGS) and (before or not index % 2)
        prompts.append(before + opening if is_new else f"{index}. {before}{opening}")
    return tuple(prompts)


def _length(vocabulary: Vocabulary, text: str) -> int:
    """Tokens of a text; without a tokenizer an upper estimate for ordinary words."""
    if vocabulary.tokenizer is None:
        return round(len(text.split()) * _TOKENS_PER_WORD) + 1
    return len(vocabulary.tokenizer.encode(text, add_special_tokens=False).ids)


def _long_text(vocabulary: Vocabulary, room: int, start: int) -> str:
    """Sentences that fill at most so many tokens; the last one may end anywhere."""
    words: list[str] = []
    number = start
    while _length(vocabulary, "".join(words)) <= room:
        words += [f"{word} " for word in _SENTENCE.format(number=number, count=number * 7 % 91).split()]
        number += 1
    lengths = range(len(words) + 1)
    fitting = bisect_right(lengths, room, key=lambda count: _length(vocabulary, "".join(words[:count])))
    return "".join(words[: max(0, fitting - 1)])


def _short(text: str) -> str:
    shown = " ".join(text.split())
    return shown if len(shown) <= _SHOWN else "… " + shown[-_SHOWN:]


def _failure(error: WrongAnswerError | BadAnswerError, where: str = "") -> Failure:
    kind = FailureClass.WRONG_OUTPUT if isinstance(error, WrongAnswerError) else FailureClass.SHORT_OUTPUT
    return Failure(kind, Phase.SERVING, (f"{where}{error}",), detail=f"the output check failed: {error}")


def read_questions(path: Path) -> list[tuple[str, str]]:
    """Pairs of question and answer from a JSON-lines file.

    Raises:
        UserError: the file cannot be read, or a line has not both.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        rows = [json.loads(line) for line in lines if line.strip()]
        pairs = [(str(row["question"]), str(row["answer"])) for row in rows]
    except (OSError, ValueError, LookupError, TypeError) as error:
        hint = 'each line: {"question": "…", "answer": "…"}'
        raise UserError(f"{path}: cannot be read as questions: {error}", hint=hint) from error
    if not pairs:
        raise UserError(f"{path}: holds no question")
    return pairs


def _holds(text: str, expected: str) -> bool:
    """Whether the expected words occur in a text, whatever case and blanks."""
    return f" {_plain(expected)} " in f" {_plain(text)} "


def _plain(text: str) -> str:
    return " ".join("".join(char.lower() if char.isalnum() else " " for char in text).split())

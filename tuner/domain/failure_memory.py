"""What a study has learned from its failures, by rules that can be explained: no probabilities of a model, no I/O.

* `next_step`: what one attempt gets.
* `FailureMemory`: which values (or combinations) are set aside and on what evidence, and whether the study should stop.

A value is set aside when every trial with it failed in one class, at least twice, while rivals of it succeeded, and so
many failures in a row would be unlikely at the rivals' own failure rate. Values that always occurred together are set
aside together only, since no trial tells them apart. One success lets a value off.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from tuner.domain.candidate import Candidate
from tuner.domain.outcome import FAILURES, Action, Failure, FailureClass
from tuner.domain.values import spell

MIN_FAILURES = 2
"""Fewer failures set nothing aside."""
MAX_CHANCE = 0.12
"""Largest probability of the failures under the rivals' failure rate at which a value is still set aside."""

Setting = tuple[str, str]
"""A knob and a value of it, as people read it."""


def next_step(failure: Failure, attempt: int, *, is_baseline: bool, shrinking: bool | None = None) -> Action:
    """What a trial gets after one of its launches failed.

    Args:
        failure: how the launch failed.
        attempt: number of that launch within its trial, from 1.
        is_baseline: whether the launch was of the user's own settings.
        shrinking: for a shortage (`gpu_busy`): whether it became smaller since the last launch; None if unknown.

    Returns:
        Never `stop_if_steady`: that is resolved to a retry or a stop here.
    """
    policy = FAILURES[failure.failure_class]
    action = policy.baseline_action if is_baseline else policy.action
    if action in (Action.MARK_INFEASIBLE, Action.STOP):
        return action
    steady = failure.failure_class is FailureClass.GPU_BUSY and attempt > 1 and shrinking is False
    if attempt <= policy.retries and not steady:
        return Action.RETRY_WAIT if action is Action.STOP_IF_STEADY else action
    assert policy.then is not None
    return policy.then


@dataclass(frozen=True, slots=True)
class Tried:
    """One trial as the memory sees it: the last launch of a candidate.

    Attributes:
        trial: trial number.
        candidate: what was launched.
        failure: how it failed; None when it was measured.
        attempts: how many launches it had.
        is_baseline: whether these were the user's own settings.
        second_chance: whether it was launched to give a set-aside value its second chance.
    """

    trial: int
    candidate: Candidate
    failure: Failure | None
    attempts: int = 1
    is_baseline: bool = False
    second_chance: bool = False

    @property
    def blames_candidate(self) -> bool:
        """Whether it failed by the candidate's own fault."""
        return self.failure is not None and FAILURES[self.failure.failure_class].teaches_sampler


@dataclass(frozen=True, slots=True)
class SetAside:
    """A value, or a combination of values, that is not drawn for now.

    Attributes:
        engine: engine for which this holds.
        settings: the values; all of them together are set aside.
        failure_class: the class in which all its trials failed.
        failed: trials that failed with it.
        rivals: trials that succeeded with another value.
        chance: probability of so many failures in a row at the rivals' failure rate.
        evidence: a log line of the first of these failures.
        had_second_chance: whether it was tried once more already.
    """

    engine: str
    settings: tuple[Setting, ...]
    failure_class: FailureClass
    failed: tuple[int, ...]
    rivals: tuple[int, ...]
    chance: float
    evidence: str = ""
    had_second_chance: bool = False

    def covers(self, candidate: Candidate) -> bool:
        """Whether a candidate holds all of the values."""
        return candidate.engine == self.engine and settings_of(candidate).issuperset(self.settings)

    def __str__(self) -> str:
        what = " with ".join(f"{name}={value}" for name, value in self.settings)
        failed, rivals = ", ".join(map(str, self.failed)), ", ".join(map(str, self.rivals))
        return f"{what}: {self.failure_class.value} in every trial ({failed}), while others succeeded ({rivals})"


def settings_of(candidate: Candidate) -> frozenset[Setting]:
    """Every active knob of a candidate with its value; `unset` is a value, too."""
    return frozenset((name, spell(value)) for name, value in candidate.values.items())


@dataclass(frozen=True, slots=True)
class StopAdvice:
    """A reason to end the study, or (`certain` False) to ask whether the host is at fault."""

    certain: bool
    words: str
    trials: tuple[int, ...]


class FailureMemory:
    """Answers from a study's trials; immutable, so a new one is made after each launch."""

    def __init__(self, tried: Iterable[Tried]) -> None:
        self._tried = tuple(tried)
        self._settings = {one.candidate.fingerprint: settings_of(one.candidate) for one in self._tried}
        self._counted: dict[str, list[Tried]] = defaultdict(list)
        self._with: dict[tuple[str, Setting], set[int]] = defaultdict(set)
        for place, one in enumerate(self._tried):
            # Only what was measured, or failed by its own fault, says something about its candidate.
            if one.failure is None or one.blames_candidate:
                self._counted[one.candidate.engine].append(one)
                for setting in self._of(one):
                    self._with[one.candidate.engine, setting].add(place)

    @cached_property
    def set_aside(self) -> tuple[SetAside, ...]:
        """Values and combinations set aside, those with most failures first."""
        found: list[SetAside] = []
        for engine in dict.fromkeys(one.candidate.engine for one in self._tried):
            failed = [one for one in self._counted[engine] if one.failure is not None]
            singles = self._suspects(engine, {(setting,) for one in failed for setting in self._of(one)})
            explained = {trial for aside in singles for trial in aside.failed}
            unexplained = [one for one in failed if one.trial not in explained]
            pairs = {pair for one in unexplained for pair in itertools.combinations(sorted(self._of(one)), 2)}
            found += [*singles, *self._suspects(engine, pairs)]
        return tuple(sorted(found, key=lambda aside: (-len(aside.failed), aside.settings)))

    def second_chances(self) -> tuple[SetAside, ...]:
        """What is to be tried once more before the study ends, least certain first."""
        waiting = [aside for aside in self.set_aside if not aside.had_second_chance]
        return tuple(sorted(waiting, key=lambda aside: -aside.chance))

    def advice(self) -> StopAdvice | None:
        """A reason to end the study or to suspect the host, or None."""
        for one in self._tried:
            if one.failure is not None and FAILURES[one.failure.failure_class].fault == "study":
                policy = FAILURES[one.failure.failure_class]
                return StopAdvice(True, f"{one.failure.failure_class.value}: {policy.words}", (one.trial,))
        return self._toolchain_advice() or self._host_advice()

    # -- set aside

    def _of(self, one: Tried) -> frozenset[Setting]:
        return self._settings[one.candidate.fingerprint]

    def _holders(self, engine: str, settings: Iterable[Setting]) -> list[Tried]:
        """The counted trials with all of the values."""
        places = [self._with.get((engine, setting), set()) for setting in settings]
        return [self._tried[place] for place in sorted(set.intersection(*places))]

    def _suspects(self, engine: str, combinations: Iterable[tuple[Setting, ...]]) -> list[SetAside]:
        """Those combinations that all evidence speaks against; what no trial tells apart is merged into one."""
        together: dict[tuple[int, ...], list[SetAside]] = defaultdict(list)
        for settings in sorted(combinations):
            if aside := self._accuse(engine, settings):
                together[aside.failed].append(aside)
        merged = [_merge(group) for group in together.values()]
        # A value whose failures another one explains, and more, is a bystander.
        return [one for one in merged if not any(set(one.failed) < set(other.failed) for other in merged)]

    def _accuse(self, engine: str, settings: tuple[Setting, ...]) -> SetAside | None:
        holders = self._holders(engine, settings)
        failures = [one.failure for one in holders if one.failure is not None]
        classes = {failure.failure_class for failure in failures}
        distinct = {one.candidate.fingerprint for one in holders}
        if len(failures) < len(holders) or len(classes) != 1 or len(distinct) < MIN_FAILURES:
            return None
        (failure_class,) = classes
        knobs = {name for name, _ in settings}
        others = [one for one in self._counted[engine] if not self._of(one).issuperset(settings)]
        rivals = [one for one in others if not knobs.isdisjoint(one.candidate.values)]
        succeeded = [one for one in rivals if one.failure is None]
        if not succeeded or not self._innocent_alone(engine, settings):
            return None
        alike = sum(1 for one in rivals if one.failure is not None and one.failure.failure_class is failure_class)
        # Rule of succession (Laplace): the rivals' failure rate, never 0 on few trials.
        rate = (alike + 1) / (alike + len(succeeded) + 2)
        chance = rate ** len(distinct)
        if chance > MAX_CHANCE:
            return None
        return SetAside(
            engine,
            settings,
            failure_class,
            tuple(one.trial for one in holders),
            tuple(one.trial for one in succeeded),
            chance,
            next((failure.evidence[0] for failure in failures if failure.evidence), ""),
            any(one.second_chance for one in holders),
        )

    def _innocent_alone(self, engine: str, settings: tuple[Setting, ...]) -> bool:
        """For a pair: whether each of its values succeeded without the other."""
        if len(settings) == 1:
            return True
        return all(any(one.failure is None for one in self._holders(engine, (setting,))) for setting in settings)

    # -- advice

    def _toolchain_advice(self) -> StopAdvice | None:
        """Two configurations that share no change from the baseline and both miss the compiler: it is the machine."""
        failed = [one for one in self._tried if _failed_as(one, FailureClass.JIT_TOOLCHAIN)]
        for a, b in itertools.combinations(failed, 2):
            if not self._changes(a) & self._changes(b):
                words = FAILURES[FailureClass.JIT_TOOLCHAIN].words
                return StopAdvice(True, f"two unrelated configurations: {words}", (a.trial, b.trial))
        return None

    def _changes(self, one: Tried) -> frozenset[Setting]:
        """What a trial sets differently from the baseline of its engine, or all that it sets without one."""
        engine = one.candidate.engine
        base = next((b for b in self._tried if b.is_baseline and b.candidate.engine == engine), None)
        return self._of(one) - self._of(base) if base is not None else self._of(one)

    def _host_advice(self) -> StopAdvice | None:
        """Hangs with two values of one P2P knob that never succeeded: the host's peer-to-peer may be broken."""
        hung = [one for one in self._tried if _failed_as(one, FailureClass.NCCL_HANG)]
        values: dict[str, dict[str, int]] = defaultdict(dict)
        for one in hung:
            for name, value in sorted(self._of(one)):
                if "p2p" in name.lower() and all(
                    t.failure for t in self._holders(one.candidate.engine, [(name, value)])
                ):
                    values[name].setdefault(value, one.trial)
        for name, trials in values.items():
            if len(trials) > 1:
                cause = "GPU peer-to-peer may be broken (IOMMU, ACS)"
                words = f"collectives hang with {name} = {' and '.join(trials)}: {cause}"
                return StopAdvice(False, words, tuple(trials.values()))
        return None


def _failed_as(one: Tried, failure_class: FailureClass) -> bool:
    return one.failure is not None and one.failure.failure_class is failure_class


def _merge(group: list[SetAside]) -> SetAside:
    """Values with the very same failed trials: set aside together only; the weakest evidence counts."""
    settings = tuple(dict.fromkeys(setting for aside in group for setting in aside.settings))
    return replace(max(group, key=lambda aside: aside.chance), settings=settings)

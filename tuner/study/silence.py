"""Settings that running servers said do nothing: where that holds, so that no launch is spent on them again.

A server speaks of one configuration. What it says is carried over to others as far as the finding allows: one that
names the knobs it rests on (`KnobActivity.rests_on`) holds wherever these have the same values, for every value of the
knob; any other holds for this value wherever all that its launches had in common is the same (the most specific
generalisation, as in version spaces: Mitchell, Artificial Intelligence 18, 1982). A launch in which the setting acted
takes back what it contradicts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tuner.domain.candidate import Candidate
from tuner.domain.space import Space
from tuner.domain.study import AttemptRecord
from tuner.domain.trial import Activity, KnobActivity
from tuner.domain.values import Value, same, spell
from tuner.study.settings import mixed


@dataclass(frozen=True, slots=True)
class Silent:
    """A setting that does nothing.

    Attributes:
        engine: of the configurations that it was seen in.
        knob: knob name.
        values: which do nothing; None for all of them.
        where: other knobs → value with which that was seen; empty for everywhere.
        reason: the server's.
        trials: in which it was seen.
    """

    engine: str
    knob: str
    values: tuple[Value, ...] | None
    where: Mapping[str, Value]
    reason: str
    trials: tuple[int, ...]

    @property
    def everywhere(self) -> bool:
        """Whether the knob does nothing at all: no value of it, whatever the others are."""
        return self.values is None and not self.where

    def covers(self, candidate: Candidate) -> bool:
        """Whether a configuration has the setting where it does nothing."""
        value = candidate.values.get(self.knob)
        known = self.values is None or any(same(value, one) for one in self.values)
        return candidate.engine == self.engine and value is not None and known and _holds(self.where, candidate)

    def __str__(self) -> str:
        places = " and ".join(f"{name} is {spell(value)}" for name, value in self.where.items())
        return f"{self.knob} does nothing{f' where {places}' if places else ''}: {self.reason}"


@dataclass(frozen=True, slots=True)
class _Seen:
    """What one launch said about one knob that it set."""

    trial: int
    candidate: Candidate
    item: KnobActivity

    @property
    def value(self) -> Value:
        return self.candidate.values.get(self.item.knob)


def silent_settings(attempts: Iterable[AttemptRecord]) -> tuple[Silent, ...]:
    """What all launches of a study together say, verification launches among them."""
    groups: dict[tuple[str, str], list[_Seen]] = {}
    for attempt in attempts:
        for item in attempt.activity:
            if item.state is not Activity.UNKNOWN and attempt.candidate.values.get(item.knob) is not None:
                seen = _Seen(attempt.trial, attempt.candidate, item)
                groups.setdefault((attempt.candidate.engine, item.knob), []).append(seen)
    return tuple(silent for seen in groups.values() for silent in _of_knob(seen))


def _of_knob(seen: Sequence[_Seen]) -> list[Silent]:
    acted = [one for one in seen if one.item.state is Activity.ACTIVE]
    idle = [one for one in seen if one.item.state is Activity.INACTIVE]
    found = []
    for group in _alike(idle):
        first = group[0]
        rests_on = first.item.rests_on
        where = _common(group) if rests_on is None else {name: first.candidate.values.get(name) for name in rests_on}
        values = None if rests_on is not None else (first.value,)
        silent = Silent(
            engine=first.candidate.engine,
            knob=first.item.knob,
            values=values,
            where=where,
            reason=first.item.reason,
            trials=tuple(dict.fromkeys(one.trial for one in group)),
        )
        if not any(silent.covers(one.candidate) for one in acted):
            found.append(silent)
    return found


def _alike(idle: Sequence[_Seen]) -> list[list[_Seen]]:
    """Launches whose findings say the same: about the same knobs with the same values, or about the same value."""
    groups: dict[tuple[object, ...], list[_Seen]] = {}
    for one in idle:
        rests_on = one.item.rests_on
        key: tuple[object, ...] = ("value", spell(one.value))
        if rests_on is not None:
            key = ("places", *((name, spell(one.candidate.values.get(name))) for name in rests_on))
        groups.setdefault(key, []).append(one)
    return list(groups.values())


def _common(group: Sequence[_Seen]) -> dict[str, Value]:
    """Settings of other knobs that all launches of a group share."""
    first = group[0]
    shared = {name: value for name, value in first.candidate.values.items() if name != first.item.knob}
    for one in group[1:]:
        values = one.candidate.values
        shared = {name: value for name, value in shared.items() if same(values.get(name), value)}
    return shared


def _holds(where: Mapping[str, Value], candidate: Candidate) -> bool:
    return all(same(candidate.values.get(name), value) for name, value in where.items())


def without_silent(
    space: Space, candidate: Candidate, baseline: Candidate, silent: Sequence[Silent]
) -> tuple[Candidate, tuple[Silent, ...]]:
    """A configuration without what it changes to no effect, and what that was.

    Nothing is taken out where a rule of the space forbids what is left.
    """
    changed = candidate.differs_from(baseline)
    idle = tuple(one for one in silent if one.knob in changed and one.covers(candidate))
    plain = mixed(space, candidate, baseline, {one.knob for one in idle})
    if not idle or any(space.broken_rules(plain.engine, plain.values)):
        return candidate, ()
    return plain, idle


def inactive_knobs(attempts: Iterable[AttemptRecord], candidate: Candidate) -> dict[str, str]:
    """Knob → why the servers that ran a configuration said that it does not act; one that acted in any is left out."""
    said: dict[str, str] = {}
    acted: set[str] = set()
    for attempt in attempts:
        for item in attempt.activity if attempt.candidate.fingerprint == candidate.fingerprint else ():
            if item.state is Activity.INACTIVE:
                said[item.knob] = item.reason
            elif item.state is Activity.ACTIVE:
                acted.add(item.knob)
    return {knob: reason for knob, reason in said.items() if knob not in acted}


def never_active(attempts: Iterable[AttemptRecord]) -> frozenset[tuple[str, str]]:
    """Engine and knob, where running servers said that the knob does not act and none ever said that it does."""
    said: dict[Activity, set[tuple[str, str]]] = {state: set() for state in Activity}
    for attempt in attempts:
        for item in attempt.activity:
            said[item.state].add((attempt.candidate.engine, item.knob))
    return frozenset(said[Activity.INACTIVE] - said[Activity.ACTIVE])

"""The settings in which two configurations differ, each as small as can change alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from tuner.domain.candidate import Candidate
from tuner.domain.space import Rule, Space
from tuner.errors import StudyError

_MOST_BOUND = 3
"""So many settings are tried together: rules bind two or three, and larger sets are too many to try."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Knobs that can only change together: one, a switch and what it switches on or off, or what rules bind.

    Attributes:
        knobs: their names, in the space's order.
        without: the winner with these knobs as the baseline has them; None when a rule of the space forbids it.
        note: why it is not launched; empty otherwise.
    """

    knobs: tuple[str, ...]
    without: Candidate | None
    note: str = ""

    @property
    def name(self) -> str:
        """For people."""
        return " + ".join(self.knobs)


def settings_between(space: Space, baseline: Candidate, winner: Candidate) -> tuple[Setting, ...]:
    """The settings that differ, each as small as the conditions and rules of the space allow.

    Raises:
        StudyError: when nothing differs, or the two run different engines.
    """
    if baseline.engine != winner.engine:
        raise StudyError("an ablation stays within one engine", hint="compare engines with `tuner study compare`")
    groups = [{name} for name in winner.differs_from(baseline)]
    if not groups:
        raise StudyError("the baseline itself was chosen: there is no setting to look at")
    knobs = space.knobs_of(winner.engine)
    while True:
        joined = next((found for g in groups if (found := _joined(space, baseline, winner, g, groups))), None)
        joined = joined or _bound(space, baseline, winner, groups)
        if joined is None:
            break
        groups = [g for g in groups if not g & joined] + [joined]
    place = {name: index for index, name in enumerate(knobs)}
    ordered = sorted((sorted(group, key=place.__getitem__) for group in groups), key=lambda group: place[group[0]])
    return tuple(_setting(space, baseline, winner, tuple(group)) for group in ordered)


def _joined(
    space: Space, baseline: Candidate, winner: Candidate, group: set[str], groups: Sequence[set[str]]
) -> set[str] | None:
    """The larger group that this one must become, because taking it out alone changes more, or nothing; else None."""
    changed = set(winner.differs_from(mixed(space, winner, baseline, group)))
    wider = group | changed
    if not group & changed:
        # Inactive in the winner: it comes back only with the switch that its condition names.
        wider |= {need for name in group for need in space.knobs_of(winner.engine)[name].needs if _in(need, groups)}
    whole = wider.union(*(other for other in groups if other & wider))
    return whole if whole != group else None


def _bound(space: Space, baseline: Candidate, winner: Candidate, groups: Sequence[set[str]]) -> set[str] | None:
    """The fewest groups that rules of the space allow to be taken out together, and none of them alone."""

    def forbidden(group: set[str]) -> bool:
        return _broken_rule(space, mixed(space, winner, baseline, group)) is not None

    alone = [group for group in groups if forbidden(group)]
    unions = (set().union(*some) for size in range(2, _MOST_BOUND + 1) for some in combinations(alone, size))
    return next((union for union in unions if not forbidden(union)), None)


def _broken_rule(space: Space, candidate: Candidate) -> Rule | None:
    return next(space.broken_rules(candidate.engine, candidate.values), None)


def _in(name: str, groups: Iterable[set[str]]) -> bool:
    return any(name in group for group in groups)


def mixed(space: Space, base: Candidate, other: Candidate, knobs: Iterable[str]) -> Candidate:
    """`base` with some knobs as `other` has them."""
    values = dict(base.values)
    for name in knobs:
        if name in other.values:
            values[name] = other.values[name]
        else:
            values.pop(name, None)
    return Candidate.of(space, base.engine, values)


def _setting(space: Space, baseline: Candidate, winner: Candidate, group: tuple[str, ...]) -> Setting:
    without = mixed(space, winner, baseline, group)
    rule = _broken_rule(space, without)
    if rule is not None:
        return Setting(group, None, f"cannot be left out alone: {rule.because or rule.forbid}")
    return Setting(group, without)

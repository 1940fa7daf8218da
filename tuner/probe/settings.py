"""A space's NCCL knobs → the environments to be tried, the most telling first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, product

from tuner.domain.candidate import Candidate
from tuner.domain.denied import BUILT_IN, DenyList
from tuner.domain.knob import Knob
from tuner.domain.probe import ProbeSetting
from tuner.domain.space import EngineSpace, Hardware, Space
from tuner.domain.values import Assignment, Value, same
from tuner.engines.plan import env_text

_NCCL = "NCCL_"
_CHOICES = ("NCCL_PROTO", "NCCL_ALGO")
"""Variables that choose together: their pairs are tried too."""

_MOST_PARENTS = 4096


@dataclass(frozen=True, slots=True)
class SettingGroups:
    """What to try.

    Attributes:
        single: the baseline first, then each value of each knob alone.
        pairs: protocol and algorithm together.
        parents: values of other knobs with which the NCCL knobs act at all, where they differ from the baseline.
    """

    single: tuple[ProbeSetting, ...]
    pairs: tuple[ProbeSetting, ...]
    parents: Assignment

    @property
    def all(self) -> tuple[ProbeSetting, ...]:
        """Every setting, in this order."""
        return (*self.single, *self.pairs)


def nccl_knobs(space: Space, engine: str) -> dict[str, Knob]:
    """The knobs of an engine that set an NCCL variable."""
    return {
        name: knob
        for name, knob in space.knobs_of(engine).items()
        if knob.env is not None and knob.env.startswith(_NCCL)
    }


def setting_groups(space: Space, engine: str, baseline: Assignment, deny: DenyList = BUILT_IN) -> SettingGroups:
    """The settings that a space allows.

    A knob that is inactive (because the engine's own all-reduce is on, say) is tried with those values of the other
    knobs that make it active: only its variable goes to the ranks, never an engine's flag.

    Args:
        space: the space.
        engine: one of its engines.
        baseline: a value for every knob of the engine, inactive ones too.
        deny: what may not be set.
    """
    knobs = nccl_knobs(space, engine)
    parents = _waking(space, engine, knobs, baseline)
    maker = _Maker(space, engine, knobs, {**baseline, **parents}, deny)
    single = [ProbeSetting({}, maker.baseline_env)]
    for name, knob in knobs.items():
        single += maker.made({name: value} for value in knob.grid)
    choosing = [name for name, knob in knobs.items() if knob.env in _CHOICES]
    pairs: list[ProbeSetting] = []
    for first, second in combinations(choosing, 2):
        both = product(knobs[first].grid, knobs[second].grid)
        pairs += maker.made({first: one, second: other} for one, other in both)
    changed = {name: value for name, value in parents.items() if not same(value, baseline.get(name))}
    return SettingGroups(tuple(single), tuple(pair for pair in pairs if len(pair.values) > 1), changed)


def _waking(space: Space, engine: str, knobs: Mapping[str, Knob], baseline: Assignment) -> dict[str, Value]:
    """Values of the knobs that conditions ask about, closest to the baseline, with which most NCCL knobs are active."""
    others = space.knobs_of(engine)
    asked = dict.fromkeys(need for knob in knobs.values() for need in knob.needs if need in others)
    names = [name for name in asked if name not in knobs]
    best: dict[str, Value] = {}
    most, fewest = -1, 0
    for number, values in enumerate(product(*(others[name].grid for name in names))):
        if number == _MOST_PARENTS:
            break
        chosen = dict(zip(names, values, strict=True))
        active = Candidate.of(space, engine, {**baseline, **chosen})
        if next(space.broken_rules(engine, active.values), None) is not None:
            continue
        count = sum(name in active.values for name in knobs)
        changes = sum(not same(value, baseline.get(name)) for name, value in chosen.items())
        if count > most or (count == most and changes < fewest):
            best, most, fewest = chosen, count, changes
    return best


class _Maker:
    """Makes settings that are active, allowed, not denied and not made before."""

    def __init__(self, space: Space, engine: str, knobs: Mapping[str, Knob], base: Assignment, deny: DenyList) -> None:
        self._space, self._engine, self._knobs, self._base, self._deny = space, engine, knobs, base, deny
        self.baseline_env = self._env(base)
        self._seen = [self.baseline_env]

    def made(self, changes: Iterable[dict[str, Value]]) -> Iterator[ProbeSetting]:
        """The settings that some changes of the base give."""
        for change in changes:
            values = {**self._base, **change}
            active = Candidate.of(self._space, self._engine, values).values
            env = self._env(values)
            if env in self._seen or any(self._deny.refuses_env(name, text) for name, text in env.items()):
                continue
            if next(self._space.broken_rules(self._engine, active), None) is not None:
                continue
            self._seen.append(env)
            told = {n: v for n, v in change.items() if n in active and not same(v, self._base.get(n))}
            yield ProbeSetting(told, env)

    def _env(self, values: Assignment) -> dict[str, str]:
        active = Candidate.of(self._space, self._engine, values).values
        found = {}
        for name, knob in self._knobs.items():
            if (value := active.get(name)) is None:
                continue
            assert knob.env is not None
            found[knob.env] = env_text(knob.given(value))
        return found


_USUAL_KNOBS = {
    "nccl_proto": {"values": [None, "allreduce:LL", "allreduce:LL128", "allreduce:Simple"], "env": "NCCL_PROTO"},
    # A bare Tree could not serve: broadcast and all-gather have Ring only.
    "nccl_algo": {"values": [None, "Ring", "ring,tree;allreduce:tree"], "env": "NCCL_ALGO"},
    "nccl_max_channels": {"values": [None, 4, 8, 16], "ordered": True, "env": "NCCL_MAX_NCHANNELS"},
}


def usual_space(model: str, engine: str, gpus: int) -> Space:
    """The space of a probe that was asked for without one: the three knobs that matter most."""
    return Space(
        name="probe",
        model=model,
        hardware=Hardware(gpus=gpus),
        engines={engine: EngineSpace()},
        knobs={name: Knob.model_validate(knob) for name, knob in _USUAL_KNOBS.items()},
    )

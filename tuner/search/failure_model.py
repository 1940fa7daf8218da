"""Which settings make a launch fail: rules over single values and pairs of values, weighed against chance.

A *literal* says that a knob is active and has a value (or, on a scale, lies at or beyond one). A *rule* is a literal
or a pair of literals of two knobs; it may explain a failure when it holds there and at no success. The rules that may
explain a failure share the blame for it, each by its weight, with chance (a crash that any configuration might have
had). A rule that explains several failures of one kind gains weight with each; one success where it holds lets it off.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tuner.domain.outcome import FailureClass
from tuner.domain.values import spell
from tuner.search.history import History, Observation
from tuner.search.kernels import Array
from tuner.search.lattice import Lattice, Mask, Points

SINGLE_PRIOR = 0.04
"""Weight of one value being bad before any data; about 1 value in 25 of the known spaces does not work."""

PAIR_PRIOR = 0.004
"""The same for a pair of values; a known engine has a handful of such pairs among a few hundred."""

CHANCE = 0.04
"""Probability that a launch fails whatever its settings."""

_CHANCE_OF_MEMORY = 0.004
"""The same for running out of memory, which settings do and luck hardly ever."""

_MEMORY = frozenset(
    {FailureClass.OOM_WEIGHTS, FailureClass.OOM_GRAPH, FailureClass.OOM_RUNTIME, FailureClass.KV_TOO_SMALL}
)

_HOPELESS = 0.9
"""A candidate that fails with more than this probability, by more than one witness, is barred."""

_GROWTH_LIMIT = np.exp(30.0)
_ALIKE = 0.7
"""Launches that differ in this many knobs count 1/e as much as equal ones."""

_ALIKE_PRIOR = 0.5
_NEAR = 1.5
_SCALE_GAP = 3.0
_MAX_PAIRS = 4000
_MAX_CUTS = 12
_SUSPECTS_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Literal:
    """One condition on one axis: `==`, `>=` or `<=` a value's index; it never holds for an inactive knob.

    Attributes:
        axis: the axis.
        op: the comparison.
        index: the value where something failed.
        open: on scales, the nearest launched value on the other side: where between the two the edge lies is unknown.
    """

    axis: int
    op: str
    index: int
    open: int = -1


def literals_of(lattice: Lattice, failed: Points, worked: Points) -> list[Literal]:
    """The literals that may be to blame: every category, and on scales cuts at the values where something failed."""
    found = []
    for i, axis in enumerate(lattice.axes):
        if axis.ordinal:
            values = np.unique(failed[:, i])
            if len(values) > _MAX_CUTS:
                values = values[np.unique(np.linspace(0, len(values) - 1, _MAX_CUTS).round().astype(np.int64))]
            last = len(axis.values) - 1
            launched = np.concatenate([failed[:, i], worked[:, i]])
            found += [Literal(i, ">=", int(v), int(launched[launched < v].max(initial=-1))) for v in values if v > 0]
            found += [
                Literal(i, "<=", int(v), int(launched[launched > v].min(initial=last + 1))) for v in values if v < last
            ]
        else:
            found += [Literal(i, "==", v) for v in range(len(axis.values))]
    return found


@dataclass(frozen=True, slots=True)
class Risk:
    """What may go wrong at each of some points.

    Attributes:
        chance: probability that the launch fails, shape (points,).
        seconds: how long the launch takes if it does, shape (points,).
        witnesses: how many failures the likeliest cause explains, shape (points,).
    """

    chance: Array
    seconds: Array
    witnesses: Array

    def barred(self, launch_seconds: float) -> Mask:
        """Which points more than one failure speaks against, and fail almost surely or waste more than a launch takes.

        Args:
            launch_seconds: how long a launch takes that works.
        """
        hopeless = (self.chance > _HOPELESS) | (self.chance * self.seconds > launch_seconds)
        return np.asarray(hopeless & (self.witnesses > 1))


class FailureModel:
    """Learned from one engine's history.

    Args:
        lattice: of that engine.
        history: what was launched.
        failure_seconds: expected duration of a failed launch whose cause is new.
    """

    def __init__(self, lattice: Lattice, history: History, failure_seconds: float) -> None:
        self._lattice = lattice
        failures = history.failures
        self._literals = literals_of(lattice, history.points(failures), history.points(history.launched))
        twins = Counter((literal.axis, literal.op) for literal in self._literals if literal.op != "==")
        # The cuts of one scale share one value's prior: many of them hold at once.
        self._share = np.array([1 / max(1, twins[literal.axis, literal.op]) for literal in self._literals])
        self._failure_seconds = failure_seconds
        self._bad_points, self._good_points = history.points(failures), history.points(history.launched)
        self._durations = np.array([o.seconds or failure_seconds for o in failures])
        good = self._truths(history.points(history.launched))
        self._proven: Mask = np.asarray((good > 0).any(axis=0))
        self._first: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._second = self._first
        self._blame: Array = np.empty((0, 0))
        self._witnesses: Array = np.empty((0, 0))
        if failures:
            self._weigh(self._truths(history.points(failures)), good, failures)

    def _truths(self, points: Points) -> Array:
        """How probably each literal holds at each point; shape (points, literals)."""
        active = ~self._lattice.inactive(points)
        held = np.empty((len(points), len(self._literals)), dtype=np.float64)
        for j, literal in enumerate(self._literals):
            column = points[:, literal.axis]
            if literal.op == "==":
                held[:, j] = column == literal.index
            else:
                held[:, j] = np.clip((column - literal.open) / (literal.index - literal.open), 0.0, 1.0)
            held[:, j] *= active[:, literal.axis]
        return held

    def _weigh(self, bad: Array, good: Array, failures: Sequence[Observation]) -> None:
        in_bad, in_good = (bad >= 1).astype(np.float32), (good >= 1).astype(np.float32)
        failed, worked = in_bad.sum(axis=0), in_good.sum(axis=0)
        singles = np.flatnonzero((failed > 0) & (worked == 0))
        failed_pairs, worked_pairs = in_bad.T @ in_bad, in_good.T @ in_good
        i, j = np.triu_indices(len(self._literals), 1)
        axis = np.array([literal.axis for literal in self._literals], dtype=np.int64)
        # A pair with a literal that never worked adds nothing to that literal's own rule.
        open_pairs = (failed_pairs[i, j] > 0) & (worked_pairs[i, j] == 0) & (axis[i] != axis[j])
        open_pairs &= (worked[i] > 0) & (worked[j] > 0)
        i, j = i[open_pairs], j[open_pairs]
        strongest = np.argsort(-failed_pairs[i, j], kind="stable")[:_MAX_PAIRS]
        self._first = np.concatenate([singles, i[strongest]])
        self._second = np.concatenate([singles, j[strongest]])
        pairs = PAIR_PRIOR * self._share[i[strongest]] * self._share[j[strongest]]
        prior = np.concatenate([SINGLE_PRIOR * self._share[singles], pairs])
        covers = (in_bad[:, self._first] * in_bad[:, self._second]).astype(np.float64)
        self._blame, self._witnesses = np.zeros_like(covers), np.zeros_like(covers)
        classes = np.array([o.failure for o in failures], dtype=object)
        for failure in dict.fromkeys(classes):  # one cause makes one kind of failure
            rows = np.flatnonzero(classes == failure)
            self._blame[rows], self._witnesses[rows] = _share_blame(
                covers[rows], prior, _CHANCE_OF_MEMORY if failure in _MEMORY else CHANCE
            )

    def assess(self, points: Points) -> Risk:
        """The risk at each point: that of the failure whose cause it most likely shares, or that of untried values."""
        truths = self._truths(points)
        fresh = CHANCE + SINGLE_PRIOR * self._untried(truths)
        chance, seconds = np.minimum(fresh, 0.5), np.full(len(points), self._failure_seconds)
        witnesses = np.zeros(len(points))
        if len(self._first):
            holds = truths[:, self._first] * np.where(self._first == self._second, 1.0, truths[:, self._second])
            shares = holds @ self._blame.T
            worst = shares.argmax(axis=1)
            known = shares[np.arange(len(points)), worst]
            seconds = np.where(known > chance, self._durations[worst], seconds)
            chance = np.maximum(chance, known)
            suspect = (holds * self._blame[worst]).argmax(axis=1)
            witnesses = self._witnesses[worst, suspect]
            alike, count = self._alike(points)
            seconds = np.where(alike > chance, self._durations.mean(), seconds)
            witnesses = np.where(alike > chance, count, witnesses)
            chance = np.maximum(chance, alike)
        return Risk(chance, seconds, witnesses)

    def _alike(self, points: Points) -> tuple[Array, Array]:
        """Share of failures among launches like each point, and how many failures that share rests on.

        It stands in for rules of three and more values, which are too many to be listed.
        """
        weights = [np.exp(-self._gap(points, seen) / _ALIKE) for seen in (self._bad_points, self._good_points)]
        bad, good = (weight.sum(axis=1) for weight in weights)
        share = (bad + CHANCE * _ALIKE_PRIOR) / (bad + good + _ALIKE_PRIOR)
        return share, (weights[0] > np.exp(-_NEAR / _ALIKE)).sum(axis=1).astype(np.float64)

    def _gap(self, points: Points, others: Points) -> Array:
        """In how many knobs points differ; a step on a scale counts in part; shape (points, others)."""
        gap = np.zeros((len(points), len(others)))
        for i, axis in enumerate(self._lattice.axes):
            if axis.ordinal:
                place = np.array(axis.positions)
                steps = np.abs(place[points[:, i]][:, None] - place[others[:, i]][None, :])
                gap += np.minimum(1.0, _SCALE_GAP * steps)
            else:
                gap += points[:, i][:, None] != others[:, i][None, :]
        return gap

    def _untried(self, truths: Array) -> Array:
        """How many knobs of each point have a category that no working launch had yet."""
        untried = np.array([x.op == "==" for x in self._literals], dtype=bool) & ~self._proven
        return np.asarray(truths[:, untried].sum(axis=1), dtype=np.float64)

    def suspects(self, point: Points) -> Mapping[str, float]:
        """Rules that hold at a point, in words, with the probability that each is real; most probable first."""
        if not len(self._first):
            return {}
        truths = self._truths(point[None])[0]
        belief = self._blame.max(axis=0) * np.minimum(truths[self._first], truths[self._second])
        order = np.argsort(-belief, kind="stable")[:_SUSPECTS_SHOWN]
        return {self._words(int(r)): float(belief[r]) for r in order if belief[r] > CHANCE}

    def _words(self, rule: int) -> str:
        parts = dict.fromkeys([int(self._first[rule]), int(self._second[rule])])
        return " and ".join(self._literal_words(self._literals[p]) for p in parts)

    def _literal_words(self, literal: Literal) -> str:
        axis = self._lattice.axes[literal.axis]
        return f"{axis.name} {literal.op} {spell(axis.values[literal.index])}"


def _share_blame(covers: Array, prior: Array, chance: float) -> tuple[Array, Array]:
    """Each rule's share of the blame for each failure, and how many failures speak for the rule.

    A failure speaks for the rules that cover the most failures of those that cover it; a rule that merely came along
    with a better explanation gains nothing from it. Each further failure makes a rule likelier by as much as it is
    unlikely that chance struck again.

    Args:
        covers: 1 where a rule (column) holds at a failure (row); failures of one kind.
        prior: weight of each rule before any failure.
        chance: probability that a launch fails in this way whatever its settings.

    Returns:
        Both of the shape of `covers`; the second is the same in every row.
    """
    counts = covers.sum(axis=0)
    best = (covers * counts).max(axis=1, initial=0.0)
    spoken = (covers * (counts >= best[:, None])).sum(axis=0)
    weight = prior * np.minimum(chance ** (1 - spoken), _GROWTH_LIMIT)
    blame = covers * weight / (covers @ weight + chance)[:, None]
    return blame, np.broadcast_to(spoken, covers.shape)

"""Statistics of launches made in rounds: each round holds every arm once, in random order.

The model is that of the randomised complete block design (Fisher, The Design of Experiments, 1935; Montgomery, Design
and Analysis of Experiments, chapter 4): the logarithm of a launch's value is its arm plus its round plus noise. Drift,
heat and neighbours move a whole round and fall out of every comparison; what is left over all arms tells the noise from
launch to launch, with more degrees of freedom than each pair alone has. Launches that failed leave holes, which least
squares allows for. Where the same configuration was also launched several times outside the rounds, those launches tell
the same noise: their scatter is pooled with the residuals, each with its own degrees of freedom.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tuner.trial.statistics import CONFIDENCE, Interval, pooled_scatter, t_cdf, t_quantile

POWER = 0.8
_TINY = 1e-12
"""Relative noise below which data count as noise-free."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One measured value (positive, in any unit) of an arm in a round."""

    arm: str
    block: int
    value: float


@dataclass(frozen=True, slots=True)
class Contrast:
    """The difference of two arms in logarithms: estimate, its standard error, and the error's degrees of freedom.

    Without degrees of freedom (one round) the estimate stands alone.
    """

    estimate: float
    error: float
    df: int

    def interval(self, confidence: float = CONFIDENCE) -> Interval | None:
        """Student's interval of the ratio minus one; None without degrees of freedom."""
        if self.df < 1:
            return None
        half = t_quantile(0.5 + confidence / 2, self.df) * self.error
        change = math.expm1
        return Interval(change(self.estimate), change(self.estimate - half), change(self.estimate + half))

    @property
    def chance_above(self) -> float | None:
        """Probability that the true ratio is above one, given the data and no prior opinion (Student's posterior)."""
        if self.df < 1:
            return None
        if self.error <= _TINY:
            return 0.5 if abs(self.estimate) <= _TINY else float(self.estimate > 0)
        return t_cdf(self.estimate / self.error, self.df)

    @property
    def p_value(self) -> float:
        """Of the two-sided test for no difference; 1 without degrees of freedom."""
        chance = self.chance_above
        return 1.0 if chance is None else 2 * min(chance, 1 - chance)

    @property
    def smallest(self) -> float | None:
        """Smallest change (a share) that this many launches show with 80 % power at 5 %, two-sided.

        (t at 97.5 % + t at 80 %) standard errors, the usual close approximation of the noncentral t (Bloom,
        Evaluation Review 19, 1995, on minimum detectable effects).
        """
        if self.df < 1:
            return None
        return math.expm1((t_quantile(0.5 + CONFIDENCE / 2, self.df) + t_quantile(POWER, self.df)) * self.error)


class Rounds:
    """Least squares over arms and rounds of one objective."""

    def __init__(self, launches: Sequence[Launch], replicates: Iterable[Sequence[float]] = ()) -> None:
        """Fit.

        Args:
            launches: of the rounds.
            replicates: groups of values of one configuration each, launched outside the rounds and in the same way, not
                chosen for what they showed. They tell the noise only.

        Raises:
            ValueError: for a value that is not positive.
        """
        groups = [group for group in replicates if len(group) > 1]
        if any(value <= 0 for value in (*(launch.value for launch in launches), *(v for g in groups for v in g))):
            raise ValueError("a ratio needs values above zero")
        self.launches = tuple(launches)
        self._arms = {name: i for i, name in enumerate(dict.fromkeys(launch.arm for launch in launches))}
        blocks = {name: i for i, name in enumerate(dict.fromkeys(launch.block for launch in launches))}
        design = np.zeros((len(launches), len(self._arms) + len(blocks)))
        for row, launch in enumerate(launches):
            design[row, self._arms[launch.arm]] = 1
            design[row, len(self._arms) + blocks[launch.block]] = 1
        logs = np.log([launch.value for launch in launches]) if launches else np.zeros(0)
        self._inverse = np.linalg.pinv(design.T @ design)
        self._effects = self._inverse @ design.T @ logs
        self._null = np.eye(design.shape[1]) - self._inverse @ (design.T @ design)
        residuals = logs - design @ self._effects
        scatter = [(len(group) - 1) * float(np.var(np.log(group), ddof=1)) for group in groups]
        own = len(launches) - int(np.linalg.matrix_rank(design)) if launches else 0
        self.df = own + sum(len(group) - 1 for group in groups)
        self._variance = (float(residuals @ residuals) + sum(scatter)) / self.df if self.df else math.nan
        self._level = _level_noise(
            [[launch.value for launch in launches if launch.arm == arm] for arm in self._arms],
            groups,
            rounds=len(blocks),
            within=float(residuals @ residuals) / own if own else 0.0,
            within_df=own,
        )

    @property
    def deviation(self) -> float:
        """Standard deviation from launch to launch within a round, as a share; NaN without degrees of freedom."""
        return math.sqrt(self._variance)

    def level_error(self, launches: int) -> float | None:
        """Half of the 95 % interval, in logarithms, of an arm's own level after so many launches; None without repeats.

        From the scatter of launches around the mean of their arm, pooled over arms. What moves a whole round falls out
        of comparisons, but not out of a number that stands alone: the next launch has a round of its own.
        """
        if self._level is None:
            return None
        return t_quantile(0.5 + CONFIDENCE / 2, self._level.df) * math.sqrt(self._level.variance / launches)

    def together(self, a: str, b: str) -> int:
        """Rounds in which both arms were measured."""
        seen = [{launch.block for launch in self.launches if launch.arm == arm} for arm in (a, b)]
        return len(seen[0] & seen[1])

    def contrast(self, a: str, b: str) -> Contrast | None:
        """Arm `a` against arm `b`; None when no chain of shared rounds links them."""
        if a not in self._arms or b not in self._arms:
            return None
        wanted = np.zeros(len(self._effects))
        wanted[self._arms[a]] += 1
        wanted[self._arms[b]] -= 1
        if np.abs(wanted @ self._null).max() > 1e-8:  # not estimable: the data do not determine it
            return None
        square = float(wanted @ self._inverse @ wanted)
        error = math.sqrt(max(square, 0.0) * self._variance) if self.df else math.nan
        return Contrast(float(wanted @ self._effects), error, self.df)


@dataclass(frozen=True, slots=True)
class _Noise:
    """A variance of logarithms, and how many degrees of freedom its estimate is worth."""

    variance: float
    df: float


def _level_noise(
    arms: Sequence[Sequence[float]],
    replicates: Sequence[Sequence[float]],
    *,
    rounds: int,
    within: float,
    within_df: int,
) -> _Noise | None:
    """How launches of one arm scatter, the luck of their rounds included.

    All arms of a round share its luck, so that together they tell it only once: the pooled scatter is the sum of the
    mean squares of rounds and of noise, and its degrees of freedom lie between those of one arm and those of all
    (Satterthwaite, Biometrics Bulletin 2, 1946).
    """
    parts: list[tuple[float, _Noise]] = []
    if (pooled := _pooled(arms)) is not None:
        noise = (len(arms) - 1) / len(arms) * within
        luck = max(pooled.variance - noise, 0.0)
        doubt = luck**2 / max(rounds - 1, 1) + (noise**2 / within_df if within_df else 0.0)
        parts.append((pooled.df, _Noise(pooled.variance, (luck + noise) ** 2 / doubt if doubt else pooled.df)))
    if (alike := _pooled(replicates)) is not None:
        parts.append((alike.df, alike))
    if not parts:
        return None
    total = sum(weight for weight, _ in parts)
    variance = sum(weight / total * part.variance for weight, part in parts)
    doubt = sum((weight / total * part.variance) ** 2 / part.df for weight, part in parts)
    return _Noise(variance, variance**2 / doubt if doubt else total)


def _pooled(groups: Sequence[Sequence[float]]) -> _Noise | None:
    """The variance of logarithms within groups; None where no group has two values."""
    found, df = pooled_scatter([math.log(value) for value in group] for group in groups)
    return _Noise(found, df) if df else None


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Adjusted p-values of several tests: all are right together with the level's probability.

    The step-down method of Holm (Scand. J. Statist. 6, 1979), which needs no independence.
    """
    adjusted, largest = {}, 0.0
    for rank, (name, p) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p))
        adjusted[name] = largest
    return adjusted

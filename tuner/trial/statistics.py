"""Statistics of repeated measurements, as pure functions.

Written out rather than imported: scipy takes seconds to load, and a benchmark command should not. Every formula names
its source; the tests compare them with scipy and with known distributions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean, median, stdev, variance

CONFIDENCE = 0.95
_JUDGED_FROM, _GROSS = 8, 6.0
_TRIMMED = 0.2
_PLATEAU, _STEADY = 4, 0.02


@dataclass(frozen=True, slots=True)
class Interval:
    """A centre with its confidence interval, in the unit of the data."""

    center: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half the interval's length."""
        return (self.high - self.low) / 2

    @property
    def relative(self) -> float:
        """Half-width as a share of the centre; infinite around zero."""
        return self.half_width / abs(self.center) if self.center else math.inf

    def contains(self, value: float) -> bool:
        """True when the value lies within."""
        return self.low <= value <= self.high


# -- distributions ---------------------------------------------------------------------------------------------------


def regularized_beta(x: float, a: float, b: float) -> float:
    """I_x(a, b) by the continued fraction DLMF 8.17.22, summed with Lentz's method (Appl. Opt. 15, 1976)."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):  # the fraction converges fast below this only; DLMF 8.17.4 mirrors the rest
        return 1 - regularized_beta(1 - x, b, a)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    fraction, c, d = 1.0, 1.0, 0.0
    for step in range(1, 1000):
        m = step // 2
        if step % 2:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1 / (1 + term * d)
        c = 1 + term / c
        fraction *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return math.exp(log_front) / (a * fraction)


def t_cdf(t: float, df: float) -> float:
    """Student's t distribution function, from the incomplete beta function (Abramowitz & Stegun 26.7.1).

    Near the middle from the part between 0 and t: a tail's argument would round to one there.
    """
    square = t * t
    if square < df:
        return 0.5 + math.copysign(regularized_beta(square / (df + square), 0.5, df / 2) / 2, t)
    tail = regularized_beta(df / (df + square), df / 2, 0.5) / 2
    return 1 - tail if t > 0 else tail


@lru_cache(maxsize=1024)
def t_quantile(p: float, df: float) -> float:
    """The value that a Student t variable with `df` degrees of freedom stays below with probability p.

    Raises:
        ValueError: for p outside (0, 1) or df ≤ 0.
    """
    if not 0 < p < 1 or df <= 0:
        raise ValueError("needs 0 < p < 1 and df > 0")
    if p < 0.5:
        return -t_quantile(1 - p, df)
    low, high = 0.0, 2.0
    while t_cdf(high, df) < p:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if t_cdf(middle, df) < p else (low, middle)
    return (low + high) / 2


def quantile(values: Sequence[float], q: float) -> float:
    """Sample quantile with linear interpolation: type 7 of Hyndman & Fan (Am. Stat. 50, 1996), numpy's default.

    Raises:
        ValueError: for an empty sample or q outside [0, 1].
    """
    if not values or not 0 <= q <= 1:
        raise ValueError("needs a sample and 0 <= q <= 1")
    ordered = sorted(values)
    place = q * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


# -- one sample ------------------------------------------------------------------------------------------------------


def mean_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval | None:
    """Student's interval of the mean; None for fewer than two values, which have no spread."""
    if len(values) < 2:
        return None
    center = fmean(values)
    half = t_quantile(0.5 + confidence / 2, len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return Interval(center, center - half, center + half)


def positive_interval(values: Sequence[float]) -> Interval | None:
    """Student's interval of the logarithms, transformed back: for speeds and times, which differ by factors.

    It never reaches below zero, however few the values are. The centre is the geometric mean. Falls back on
    `mean_interval` where a value is 0.
    """
    if any(value <= 0 for value in values):
        return mean_interval(values)
    logs = mean_interval([math.log(value) for value in values])
    return None if logs is None else Interval(math.exp(logs.center), math.exp(logs.low), math.exp(logs.high))


def quantile_interval(values: Sequence[float], q: float) -> Interval | None:
    """Distribution-free interval of a quantile between two order statistics; None when the sample is too small.

    The number of values below the true quantile is binomial(n, q); ranks l < u are chosen so that each tail has at most
    half of what `CONFIDENCE` leaves (David & Nagaraja, Order Statistics, 3rd ed., 7.1).
    """
    n, tail = len(values), (1 - CONFIDENCE) / 2
    ordered = sorted(values)
    cumulative, lower, upper = 0.0, None, None
    for below in range(n + 1):
        before = cumulative
        cumulative += math.comb(n, below) * q**below * (1 - q) ** (n - below)
        if before <= tail and cumulative > tail:
            lower = below  # P(at most lower-1 values below) <= tail
        if upper is None and cumulative >= 1 - tail:
            upper = below + 1
    if not lower or upper is None or upper > n:
        return None
    return Interval(quantile(ordered, q), ordered[lower - 1], ordered[upper - 1])


def outliers(values: Sequence[float], cutoff: float = 3.5) -> list[int]:
    """Positions of values whose modified z-score, 0.6745·|x - median|/MAD, is above the cutoff.

    Iglewicz & Hoaglin, How to Detect and Handle Outliers (1993), who give 3.5. A sample without spread has none.
    """
    if len(values) < 3:
        return []
    center = median(values)
    spread = median(abs(value - center) for value in values)
    if spread == 0:
        return []
    return [i for i, value in enumerate(values) if 0.6745 * abs(value - center) / spread > cutoff]


def trimmed_interval(values: Sequence[float]) -> Interval | None:
    """Interval of the trimmed mean from the winsorized variance (Yuen, Biometrika 61, 1974).

    None when fewer than two values are left after cutting a fifth off each end.
    """
    n = len(values)
    cut = math.floor(_TRIMMED * n)
    kept = n - 2 * cut
    if kept < 2:
        return None
    ordered = sorted(values)
    winsorized = [min(max(value, ordered[cut]), ordered[n - cut - 1]) for value in ordered]
    center = fmean(ordered[cut : n - cut])
    error = math.sqrt((n - 1) * variance(winsorized) / (kept * (kept - 1)))
    half = t_quantile(0.5 + CONFIDENCE / 2, kept - 1) * error
    return Interval(center, center - half, center + half)


def gross_outliers(values: Sequence[float]) -> list[int]:
    """Positions of values that are too far off to be noise: a modified z-score above 6, among eight values at least.

    The usual cutoff of 3.5 finds outliers in every fifth clean sample of five and in every tenth of twenty.
    """
    return outliers(values, _GROSS) if len(values) >= _JUDGED_FROM else []


def robust_interval(values: Sequence[float]) -> Interval | None:
    """Student's interval, or Yuen's where there are `gross_outliers`: the rule is fixed before the data are seen.

    An interval that was trimmed because of a clean sample's extremes would cover less than it says.
    """
    if gross_outliers(values):
        return trimmed_interval(values)
    return mean_interval(values)


def requests_needed(values: Sequence[float], precision: float) -> int:
    """How many values in all would bring the mean's interval within ± precision·mean, if their spread stays.

    The two-stage rule of Stein (Ann. Math. Stat. 16, 1945): n = ceil((t·s / (precision·mean))²).
    """
    center = fmean(values)
    if len(values) < 2 or not center:
        return len(values) + 1
    t = t_quantile(0.5 + CONFIDENCE / 2, len(values) - 1)
    return max(2, math.ceil((t * stdev(values) / (precision * abs(center))) ** 2))


# -- over time -------------------------------------------------------------------------------------------------------


def is_steady(values: Sequence[float]) -> bool:
    """Whether the last four values form a plateau: their coefficient of variation is at most 2 %.

    The rule for the end of warm-up of Georges, Buytaert & Eeckhout (OOPSLA 2007, section 3.2), who use a window of up
    to ten and a tolerance of 1–2 %.
    """
    if len(values) < _PLATEAU:
        return False
    last = values[-_PLATEAU:]
    return stdev(last) <= _STEADY * abs(fmean(last))


def welch_difference(a: Sequence[float], b: Sequence[float], confidence: float = CONFIDENCE) -> Interval | None:
    """Interval of mean(a) - mean(b) over launches of unequal variance; None unless both have two values.

    Welch (Biometrika 34, 1947) with the degrees of freedom of Satterthwaite (Biometrics Bull. 2, 1946).
    """
    if len(a) < 2 or len(b) < 2:
        return None
    center = fmean(a) - fmean(b)
    parts = [variance(sample) / len(sample) for sample in (a, b)]
    square = sum(parts)
    if square == 0:
        return Interval(center, center, center)
    df = square**2 / sum(part**2 / (len(sample) - 1) for part, sample in zip(parts, (a, b), strict=True))
    half = t_quantile(0.5 + confidence / 2, df) * math.sqrt(square)
    return Interval(center, center - half, center + half)


def pooled_scatter(groups: Iterable[Sequence[float]]) -> tuple[float, int]:
    """Variance within groups of two values or more, pooled, and its degrees of freedom; NaN and 0 without one."""
    repeated = [group for group in groups if len(group) > 1]
    df = sum(len(group) - 1 for group in repeated)
    return (sum(variance(group) * (len(group) - 1) for group in repeated) / df if df else math.nan), df


def ratio_interval(a: Sequence[float], b: Sequence[float], confidence: float = CONFIDENCE) -> Interval | None:
    """Interval of the ratio of (geometric) means a/b, minus one: the relative effect of a over b.

    Welch's interval on the logarithms, transformed back; speeds differ by factors, not by sums.

    Raises:
        ValueError: for a value that is not above zero.
    """
    return _exponential(welch_difference([math.log(x) for x in a], [math.log(x) for x in b], confidence))


def pooled_ratio_interval(a: Sequence[float], b: Sequence[float], confidence: float = CONFIDENCE) -> Interval | None:
    """The same with one deviation for both sides (Student's), so that one of them may have a single value.

    None without a value on each side and two on one.

    Raises:
        ValueError: for a value that is not above zero.
    """
    logs = [[math.log(x) for x in side] for side in (a, b)]
    df = len(a) + len(b) - 2
    if not a or not b or df < 1:
        return None
    means = [fmean(side) for side in logs]
    squares = sum((x - mean) ** 2 for side, mean in zip(logs, means, strict=True) for x in side)
    half = t_quantile((1 + confidence) / 2, df) * math.sqrt(squares / df * (1 / len(a) + 1 / len(b)))
    change = means[0] - means[1]
    return _exponential(Interval(change, change - half, change + half))


def _exponential(interval: Interval | None) -> Interval | None:
    if interval is None:
        return None
    change: Callable[[float], float] = math.expm1
    return Interval(change(interval.center), change(interval.low), change(interval.high))

"""Does a series go up or down steadily?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import NormalDist, median


@dataclass(frozen=True, slots=True)
class Drift:
    """A monotone trend in a series.

    Attributes:
        slope: Theil–Sen slope, the median of all pairwise slopes, per unit of time.
        p_value: two-sided, of the Mann–Kendall test.
        relative: slope over the whole series as a share of the median value.
    """

    slope: float
    p_value: float
    relative: float


def drift(values: Sequence[float], times: Sequence[float] | None = None) -> Drift | None:
    """Mann–Kendall test and Theil–Sen slope; None for fewer than four values, which cannot show a trend.

    Mann (Econometrica 13, 1945), Kendall (Rank Correlation Methods, 1975), with the correction for ties and for
    continuity; Sen (JASA 63, 1968). The normal approximation is usable from about eight values on; below, the p-value
    is exact by Kendall's recurrence.
    """
    n = len(values)
    if n < 4:
        return None
    at = list(times) if times is not None else [float(i) for i in range(n)]
    pairs = [(i, j) for i, j in combinations(range(n), 2) if at[j] != at[i]]
    slopes = [(values[j] - values[i]) / (at[j] - at[i]) for i, j in pairs]
    if not slopes:
        return None
    score = sum((slope > 0) - (slope < 0) for slope in slopes)
    slope = median(slopes)
    center = median(values)
    change = slope * (max(at) - min(at)) / abs(center) if center else math.inf
    return Drift(slope, _kendall_p(values, score), change)


def _kendall_p(values: Sequence[float], score: int) -> float:
    n = len(values)
    ties = [sum(v == value for v in values) for value in set(values)]
    if n < 8 and max(ties) == 1:
        return _kendall_exact_p(n, abs(score))
    spread = (n * (n - 1) * (2 * n + 5) - sum(t * (t - 1) * (2 * t + 5) for t in ties)) / 18
    if spread <= 0 or score == 0:
        return 1.0
    return 2 * (1 - NormalDist().cdf((abs(score) - 1) / math.sqrt(spread)))


def _kendall_exact_p(n: int, score: int) -> float:
    """Share of orders of n different values whose |score| is at least this, by the recurrence over inversions."""
    counts = [1]
    for size in range(2, n + 1):
        longer = [0] * (len(counts) + size - 1)
        for inversions, number in enumerate(counts):
            for more in range(size):
                longer[inversions + more] += number
        counts = longer
    most = n * (n - 1) // 2
    extreme = sum(number for inversions, number in enumerate(counts) if abs(most - 2 * inversions) >= score)
    return min(1.0, extreme / math.factorial(n))


# -- across launches -------------------------------------------------------------------------------------------------

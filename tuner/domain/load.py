"""The load at which something is measured: a closed loop at a concurrency level, or open-loop arrivals at a rate."""

from __future__ import annotations

from dataclasses import dataclass
from functools import total_ordering
from typing import Any

OPEN_LOOP_HEADER = "X-Tuner-Open-Loop"
"""Tells a server whose clock runs faster than ours that a request came by schedule and is no reaction to an answer."""


@total_ordering
@dataclass(frozen=True, slots=True)
class LoadPoint:
    """Exactly one of the two. Sorts as loads are measured: levels by number, then rates.

    Attributes:
        level: so many requests are in flight at any time: a new one is sent when one ends.
        rate: so many requests arrive per second of the server's time, whether or not earlier ones have ended.

    Raises:
        ValueError: none or both are given, or one that is not above zero.
    """

    level: int | None = None
    rate: float | None = None

    def __post_init__(self) -> None:
        if (self.level is None) == (self.rate is None):
            raise ValueError("a load is either a level or a rate")
        if self._amount <= 0:
            raise ValueError("a load is above zero")

    @property
    def _amount(self) -> float:
        amount = self.level if self.rate is None else self.rate
        assert amount is not None
        return amount

    @property
    def is_single_stream(self) -> bool:
        """Whether each request has the server to itself."""
        return self.level == 1

    @property
    def label(self) -> str:
        """Part of an objective's name: `8` or `2.5/s`."""
        return f"{self.level}" if self.rate is None else f"{self.rate:.12g}/s"

    @property
    def slug(self) -> str:
        """Part of file names and seeds: `c8` or `rate2.5`."""
        return f"c{self.level}" if self.rate is None else f"rate{self.rate:.12g}"

    @property
    def document(self) -> dict[str, Any]:
        """As every JSON document, CSV and parquet table has it: `level` and `rate`, of which one is null."""
        return {"level": self.level, "rate": self.rate}

    def __str__(self) -> str:
        """For people: `C=8` or `2.5 req/s`."""
        return f"C={self.level}" if self.rate is None else f"{self.rate:.12g} req/s"

    def __lt__(self, other: LoadPoint) -> bool:
        return (self.rate is not None, self._amount) < (other.rate is not None, other._amount)

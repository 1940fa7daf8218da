"""What a probe's times say: which settings differ beyond noise, in which order to try them, which knobs cannot matter.

All of it is advice. A collective's microseconds are a part of a step; tokens per second decide.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from statistics import fmean, median

from tuner.domain.probe import DEFAULT, MessageSize, ProbeReport, ProbeSetting
from tuner.domain.values import Value
from tuner.trial.statistics import CONFIDENCE, Interval, t_quantile

ALL_REDUCES_PER_LAYER = 2
"""Of a tensor-parallel transformer layer: after attention, and after the feed-forward part (Shoeybi et al., 2019)."""

_LEAST_FREEDOM = 3
"""With fewer degrees of freedom an interval would be wider than any difference."""


@dataclass(frozen=True, slots=True)
class SizeTime:
    """One setting at one message size.

    Attributes:
        setting: its label.
        size_bytes: of the message.
        runs_us: median of every run, in the order of the runs.
        center_us: median of these.
        change: relative difference to the default with its interval, corrected for the number of settings; None for
            the default itself, and where too little was repeated to know the noise.
    """

    setting: str
    size_bytes: int
    runs_us: tuple[float, ...]
    change: Interval | None

    @property
    def center_us(self) -> float:
        """Microseconds."""
        return median(self.runs_us)

    @property
    def differs(self) -> bool:
        """Whether it is slower or faster than the default beyond noise."""
        return self.change is not None and not self.change.low <= 0 <= self.change.high


@dataclass(frozen=True, slots=True)
class Ranked:
    """A setting's place.

    Attributes:
        setting: what it is.
        decode_change: mean relative difference to the default over decode sizes.
        gains: decode sizes at which it is faster beyond noise; none where another one is slower.
        step_us: microseconds that a decode step of one request gains (negative: loses) by it at most; None where the
            model's layers are unknown.
    """

    setting: ProbeSetting
    decode_change: float
    gains: tuple[SizeTime, ...]
    step_us: float | None


@dataclass(frozen=True, slots=True)
class IdleKnob:
    """A knob none of whose values moved any message of this model beyond noise.

    Attributes:
        knob: its name.
        resolution: a relative difference above this would have shown.
    """

    knob: str
    resolution: float


class ProbeFindings:
    """A report, read.

    Args:
        report: of a probe whose baseline works.
    """

    def __init__(self, report: ProbeReport) -> None:
        self.report = report
        self._failed = {failure.setting for failure in report.failures}
        self._sizes = [size.size_bytes for size in report.sizes]
        self._decode = [size.size_bytes for size in report.sizes if size.decode] or self._sizes

    @cached_property
    def times(self) -> tuple[SizeTime, ...]:
        """Every setting that was measured at every size, default first."""
        return tuple(row for size in self._sizes for row in self._at(size))

    @property
    def has_noise(self) -> bool:
        """Whether enough was repeated to tell differences from noise."""
        return all(row.change is not None for row in self.times if row.setting != DEFAULT)

    @cached_property
    def ranking(self) -> tuple[Ranked, ...]:
        """Settings that never failed, the one that is best for decode steps first; equal ones as the space has them."""
        found = [self._ranked(setting) for setting in self.report.settings if self._was_measured(setting.label)]
        return tuple(sorted(found, key=lambda ranked: ranked.decode_change))

    @property
    def best(self) -> Ranked | None:
        """The first setting that is faster than the default beyond noise; None when there is none."""
        return next((ranked for ranked in self.ranking if ranked.gains), None)

    @cached_property
    def idle(self) -> tuple[IdleKnob, ...]:
        """Knobs that were tried alone and moved nothing, in the order of the space."""
        alone: dict[str, list[str]] = {}
        for setting in self.report.settings:
            if len(setting.values) == 1:
                alone.setdefault(next(iter(setting.values)), []).append(setting.label)
        return tuple(found for knob, labels in alone.items() if (found := self._idle(knob, labels)) is not None)

    @property
    def bypassed(self) -> tuple[MessageSize, ...]:
        """Messages that the engine's own all-reduce carries in the baseline, so that NCCL never sees them."""
        limit = self.report.own_up_to_bytes or 0
        return tuple(size for size in self.report.sizes if size.size_bytes < limit)

    @property
    def decode_is_bypassed(self) -> bool:
        """Whether no decode step of the baseline reaches NCCL."""
        decode = [size for size in self.report.sizes if size.decode]
        return bool(decode) and set(decode) <= set(self.bypassed)

    def likely(self) -> dict[str, tuple[Value, ...]]:
        """Knob → values worth trying first, best first; left out are knobs of which nothing is known to help."""
        found: dict[str, list[Value]] = {}
        for ranked in self.ranking:
            if not ranked.gains:
                continue
            for knob, value in ranked.setting.values.items():
                values = found.setdefault(knob, [])
                if value not in values:
                    values.append(value)
        return {knob: tuple(values) for knob, values in found.items()}

    # -- parts -------------------------------------------------------------------------------------------------------

    def _runs(self, setting: str, size: int) -> tuple[float, ...]:
        runs = sorted((run for run in self.report.runs if run.setting == setting), key=lambda run: run.position)
        return tuple(median(run.times_us[size]) for run in runs if size in run.times_us)

    def _was_measured(self, setting: str) -> bool:
        return setting not in self._failed and all(self._runs(setting, size) for size in self._sizes)

    def _at(self, size: int) -> Iterator[SizeTime]:
        groups = {s.label: runs for s in self.report.settings if (runs := self._runs(s.label, size))}
        noise = _Noise.of(groups.values())
        default = groups.get(DEFAULT, ())
        for label, runs in groups.items():
            change = None if label == DEFAULT else noise.change(runs, default, len(groups) - 1)
            yield SizeTime(label, size, runs, change)

    def _rows(self, setting: str, sizes: Iterable[int]) -> list[SizeTime]:
        wanted = set(sizes)
        return [row for row in self.times if row.setting == setting and row.size_bytes in wanted]

    def _ranked(self, setting: ProbeSetting) -> Ranked:
        rows = self._rows(setting.label, self._decode)
        changes = {row.size_bytes: _relative(row.runs_us, self._runs(DEFAULT, row.size_bytes)) for row in rows}
        slower = any(row.change is not None and row.change.low > 0 for row in rows)
        faster = tuple(row for row in rows if row.change is not None and row.change.high < 0)
        smallest = min(rows, key=lambda row: row.size_bytes)
        layers = self.report.layers
        gain = median(self._runs(DEFAULT, smallest.size_bytes)) - smallest.center_us
        return Ranked(
            setting=setting,
            decode_change=fmean(changes.values()),
            gains=() if slower else faster,
            step_us=None if layers is None else gain * layers * ALL_REDUCES_PER_LAYER,
        )

    def _idle(self, knob: str, labels: list[str]) -> IdleKnob | None:
        if not all(map(self._was_measured, labels)):
            return None
        rows = [row for label in labels for row in self._rows(label, self._sizes)]
        changes = [row.change for row in rows if row.change is not None]
        if len(changes) < len(rows) or any(row.differs for row in rows):
            return None
        return IdleKnob(knob, max((change.high - change.low) / 2 for change in changes))


def _relative(runs: tuple[float, ...], default: tuple[float, ...]) -> float:
    return median(runs) / median(default) - 1


@dataclass(frozen=True, slots=True)
class _Noise:
    """How much runs of one setting differ: pooled over all settings, on logarithms.

    One setting is repeated a few times only; that all of them scatter alike gives enough degrees of freedom.
    """

    variance: float
    freedom: int

    @classmethod
    def of(cls, groups: Iterable[tuple[float, ...]]) -> _Noise:
        squares, freedom = 0.0, 0
        for group in groups:
            logs = [math.log(value) for value in group]
            squares += sum((value - fmean(logs)) ** 2 for value in logs)
            freedom += len(logs) - 1
        return cls(squares / freedom if freedom else 0.0, freedom)

    def change(self, runs: tuple[float, ...], default: tuple[float, ...], comparisons: int) -> Interval | None:
        """Relative difference of a setting to the default; Student's interval, Bonferroni over the comparisons."""
        if self.freedom < _LEAST_FREEDOM or not default:
            return None
        center = fmean(map(math.log, runs)) - fmean(map(math.log, default))
        half = _student(comparisons, self.freedom) * math.sqrt(self.variance * (1 / len(runs) + 1 / len(default)))
        return Interval(math.expm1(center), math.expm1(center - half), math.expm1(center + half))


@cache
def _student(comparisons: int, freedom: int) -> float:
    return t_quantile(1 - (1 - CONFIDENCE) / (2 * max(1, comparisons)), freedom)

"""What a probe says, in sentences. Advice: nothing here decides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tuner.domain.outcome import FAILURES, Failure
from tuner.domain.probe import Backend, MessageSize, ProbeReport
from tuner.probe.analysis import ProbeFindings, Ranked
from tuner.trial.statistics import Interval

_UNITS = ((1 << 20, "MiB"), (1 << 10, "KiB"))


def size_text(size_bytes: int) -> str:
    """`8 KiB`, `2.5 MiB`."""
    for unit, name in _UNITS:
        if size_bytes >= unit:
            return f"{size_bytes / unit:.3g} {name}"
    return f"{size_bytes} B"


def _faster_text(change: Interval) -> str:
    """`19 % [14, 24]`, of a relative difference in time that is below zero."""
    return f"{-change.center:.0%} [{-100 * change.high:.0f}, {-100 * change.low:.0f}]".replace("%", " %")


def advice(report: ProbeReport) -> tuple[str, ...]:
    """Everything worth telling, the most important first."""
    return tuple(_sentences(report))


def _sentences(report: ProbeReport) -> Iterator[str]:
    if report.backend is Backend.GLOO:
        yield "measured with gloo on CPU: this proves the probe, and says nothing about NCCL"
    if not report.works:
        trouble = report.trouble
        why = "nothing was measured" if trouble is None else _failure_text(trouble)
        yield f"{report.backend.words} does not work between {report.ranks} ranks here: {why}"
        return
    findings = ProbeFindings(report)
    yield from _about_bypass(report, findings)
    best = findings.best
    if not findings.has_noise:
        yield "too little was repeated to know the noise: nothing is said about differences; give it more --seconds"
    elif best is not None:
        yield _about_best(best, report.sizes)
    elif len(report.settings) > 1:
        yield "no setting is faster than the default at decode sizes beyond noise"
    for knob in findings.idle:
        yield (
            f"{knob.knob}: no value moved any message of this model beyond noise "
            f"(a difference of {knob.resolution:.0%} would have shown): it can be left out of the search"
        ).replace("%", " %")
    for failed in report.failures:
        yield f"{failed.setting} fails: {_failure_text(failed.failure)}"


def _about_bypass(report: ProbeReport, findings: ProbeFindings) -> Iterator[str]:
    if not findings.bypassed:
        return
    limit = size_text(report.own_up_to_bytes or 0)
    left = [size for size in report.sizes if size not in findings.bypassed]
    if findings.decode_is_bypassed:
        text = f"{report.engine}'s own all-reduce carries messages below {limit}: no decode step reaches NCCL"
        yield f"{text}; while it is on, NCCL knobs can move {_listed(left) if left else 'nothing'}"
    else:
        yield f"{report.engine}'s own all-reduce carries {_listed(list(findings.bypassed))}; NCCL carries the rest"


def _listed(sizes: list[MessageSize]) -> str:
    return ", ".join(f"{size.step} ({size_text(size.size_bytes)})" for size in sizes)


def _about_best(best: Ranked, sizes: Sequence[MessageSize]) -> str:
    named = {size.size_bytes: size for size in sizes}
    gains = (f"{_listed([named[row.size_bytes]])} {_faster_text(row.change)}" for row in best.gains if row.change)
    text = f"{best.setting.label}: {', '.join(gains)} faster than the default"
    if best.step_us is not None and best.step_us > 0:
        text += f"; at most {best.step_us:.0f} µs of a decode step at C=1"
    return f"{text}: worth an early launch, tokens per second decide"


def _failure_text(failure: Failure) -> str:
    return f"{failure.failure_class.value}: {failure.detail or FAILURES[failure.failure_class].words}"

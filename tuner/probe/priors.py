"""What a probe tells the search: which NCCL values to try early. Only an order: trials decide what is kept."""

from __future__ import annotations

from tuner.domain.candidate import Candidate
from tuner.domain.knob import Knob, Prior
from tuner.domain.probe import Backend, ProbeReport
from tuner.domain.space import Space
from tuner.domain.values import Assignment, Value, same
from tuner.probe.analysis import ProbeFindings
from tuner.probe.settings import setting_groups

_REASON = "faster in the all-reduce probe on this machine"


def with_priors(space: Space, report: ProbeReport) -> Space:
    """The space in which values that the probe found faster are likely ones, before those that its author named.

    A report that says nothing about NCCL changes nothing.
    """
    if report.backend is not Backend.NCCL or not report.works:
        return space
    likely = ProbeFindings(report).likely()
    own = space.engines[report.engine]
    knobs = {**own.knobs, **{name: space.knobs[name] for name in likely if name not in own.knobs}}
    engine = own.model_copy(update={"knobs": {name: _likelier(knob, likely.get(name)) for name, knob in knobs.items()}})
    return space.model_copy(update={"engines": {**space.engines, report.engine: engine}})


def _likelier(knob: Knob, values: tuple[Value, ...] | None) -> Knob:
    if not values:
        return knob
    before = knob.prior.likely if knob.prior is not None else ()
    kept = tuple(value for value in before if not any(same(value, found) for found in values))
    reasons = [_REASON, *([knob.prior.reason] if knob.prior is not None and kept else [])]
    return knob.model_copy(update={"prior": Prior(likely=(*values, *kept), reason="; ".join(reasons))})


def first_candidate(space: Space, report: ProbeReport, baseline: Assignment) -> Candidate | None:
    """The baseline with the setting that the probe found best; None when nothing was faster beyond noise.

    None also where the engine's own all-reduce carries every decode step of the baseline: to launch without it is a
    larger change than the probe can speak for.
    """
    if report.backend is not Backend.NCCL or not report.works:
        return None
    findings = ProbeFindings(report)
    best = findings.best
    if best is None or findings.decode_is_bypassed:
        return None
    parents = setting_groups(space, report.engine, baseline).parents
    candidate = Candidate.of(space, report.engine, {**baseline, **parents, **best.setting.values})
    return None if any(space.broken_rules(report.engine, candidate.values)) else candidate

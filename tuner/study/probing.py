"""The all-reduce probe as a command and as the first step of a study."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tuner.domain.probe import Backend, ProbeReport
from tuner.domain.space import Space
from tuner.domain.trial import Purpose
from tuner.domain.values import Assignment
from tuner.engines.catalogue import catalogues
from tuner.engines.definition import load_definition
from tuner.errors import MachineUnfit, UsageError
from tuner.probe.advice import advice
from tuner.probe.priors import first_candidate
from tuner.probe.probe import USUAL_SECONDS, ProbeRequest, run_probe
from tuner.probe.settings import usual_space
from tuner.search.base import Search
from tuner.spec import load_space
from tuner.store import Store
from tuner.study.claim import Heartbeat
from tuner.study.events import Noted, StudyEvent
from tuner.study.stopping import StopSwitch


@dataclass(frozen=True, slots=True)
class ProbeOptions:
    """What `tuner doctor --nccl` was asked for.

    Attributes:
        space: space file; None takes the usual NCCL knobs.
        model: model folder or name; needed without a space, replaces the space's with one.
        engine: in whose environment the ranks run; by default the space's first real engine.
        ranks: GPUs; None takes the space's, or all.
        seconds: after this long no further run begins.
    """

    space: str | None = None
    model: str | None = None
    engine: str | None = None
    ranks: int | None = None
    seconds: float = USUAL_SECONDS


def probe_host(options: ProbeOptions, say: Callable[[str], None]) -> ProbeReport:
    """Probe this machine; the files are kept only when something failed, where the failure's evidence says.

    Raises:
        UsageError: neither space nor model and engine are given.
        UserError: see `tuner.probe.probe.run_probe`.
        MachineUnfit: the same.
    """
    space = _space(options)
    engine = options.engine or _first_real(space)
    folder = Path(tempfile.mkdtemp(prefix="tuner-probe-"))
    request = ProbeRequest(space, engine, folder, ranks=options.ranks, seconds=options.seconds)
    is_evidence = False
    try:
        report = run_probe(request, say=say)
        is_evidence = bool(report.failures)
    finally:
        if not is_evidence:
            shutil.rmtree(folder, ignore_errors=True)
    return report


def _space(options: ProbeOptions) -> Space:
    if options.space is not None:
        changes = {} if options.model is None else {"model": options.model}
        return load_space(options.space, catalogues=catalogues(), overrides=changes).space
    if options.model is None or options.engine is None:
        raise UsageError(
            "the probe needs to know the model", hint="give --space FILE, or --model PATH and --engine NAME"
        )
    return usual_space(options.model, load_definition(options.engine).name, options.ranks or 0)


def _first_real(space: Space) -> str:
    real = [name for name in space.engines if not load_definition(name).simulated]
    if not real:
        raise UsageError("the probe needs a real engine, and the space has simulated ones only")
    return real[0]


@dataclass(frozen=True, slots=True)
class FirstStep:
    """The probe as the first step of a study.

    Attributes:
        study: its name.
        space: as stored.
        gpus: GPUs per launch.
        folder: for the probe's files.
        elsewhere: trials run on other machines, of which a probe here says nothing.
        seconds: after this long no further run begins.
    """

    study: str
    space: Space
    gpus: int
    folder: Path
    elsewhere: bool = False
    seconds: float = USUAL_SECONDS


def probe_first(
    step: FirstStep,
    store: Store,
    *,
    stop: StopSwitch,
    notify: Callable[[StudyEvent], None],
    keep_lease: Callable[[], object],
) -> ProbeReport | None:
    """What the study's probe measured: stored already, or measured now, before the first launch.

    Args:
        step: of which study.
        store: where it is stored.
        stop: the user's switch; a probe that is stopped is not stored.
        notify: gets what the probe says.
        keep_lease: renews the claim to the study; called now and then meanwhile.

    Raises:
        MachineUnfit: NCCL does not work on this machine.
        UsageError: the space has simulated engines only.
    """
    known = store.probe(step.study)
    if known is not None or not step.space.probe or store.attempts(step.study):
        return known
    if step.elsewhere:
        notify(Noted("no all-reduce probe: trials run on other machines than this one"))
        return None
    notify(Noted(f"all-reduce probe, about {step.seconds:.0f} s"))
    heart = Heartbeat(keep_lease)

    def is_stopped() -> bool:
        heart.beat()
        return stop.urgency > 0

    engine = _first_real(step.space)
    request = ProbeRequest(step.space, engine, step.folder, ranks=step.gpus or None, seconds=step.seconds)
    report = run_probe(request, is_cancelled=is_stopped)
    if stop.urgency > 0:
        return None
    store.record_probe(step.study, report)
    for sentence in advice(report):
        notify(Noted(f"probe: {sentence}"))
    if report.backend is Backend.NCCL and not report.works:
        raise MachineUnfit(advice(report)[0], hint=f"see {step.folder}, or start with --no-probe to try all the same")
    return report


def queue_best(search: Search, space: Space, report: ProbeReport, baseline: Assignment) -> None:
    """Have the setting that the probe found best launched right after the baselines."""
    candidate = first_candidate(space, report, baseline)
    if candidate is not None:
        search.enqueue(candidate, Purpose.SEARCH)

"""The all-reduce probe as a command and as the first step of a study."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tuner.domain.probe import ProbeReport
from tuner.domain.space import Space
from tuner.engines.catalogue import catalogues
from tuner.engines.definition import load_definition
from tuner.errors import UsageError
from tuner.probe.probe import USUAL_SECONDS, ProbeRequest, run_probe
from tuner.probe.settings import usual_space
from tuner.spec import load_space


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
    report = run_probe(request, say=say)
    if not report.failures:
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

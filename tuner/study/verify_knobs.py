"""A short launch of its own in which NCCL tells what it does: which of a configuration's settings act."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from tuner.domain.candidate import Candidate
from tuner.domain.outcome import Failure
from tuner.domain.space import Space
from tuner.domain.trial import KnobActivity, Purpose, TrialEvent, TrialReport, TrialRequest
from tuner.domain.values import spell
from tuner.domain.workload import Workload
from tuner.engines.nccl_log import (
    NcclReading,
    decode_sizes,
    own_all_reduce,
    read_nccl_log,
    variable_activity,
    verification_env,
)
from tuner.trial.logfile import first_lines
from tuner.trial.process import LOG
from tuner.trial.runner import run_trial

_SMALL_MESSAGE_BYTES = 1 << 20
"""Where the model's width is unknown: all-reduces up to this size count as those of decode steps."""


@dataclass(frozen=True, slots=True)
class KnobCheck:
    """What the launch showed.

    Attributes:
        activity: every knob that the configuration sets.
        nccl: what NCCL said; empty where no process loaded it.
        own: the engine's own all-reduce that comes first, if its log names one.
        failure: why the launch failed, or None.
    """

    activity: tuple[KnobActivity, ...]
    nccl: NcclReading
    own: str | None
    failure: Failure | None = None


def verify_knobs(
    space: Space,
    candidate: Candidate,
    run_dir: Path,
    *,
    trial: int = 0,
    gpus: int = 0,
    notify: Callable[[TrialEvent], None] = lambda event: None,
) -> KnobCheck:
    """Launch a configuration with NCCL's log on, send a little load, and read what acted; its speed is not looked at.

    Args:
        space: of the study.
        candidate: the configuration.
        run_dir: folder for the launch's files.
        trial: number to show in the launch's labels.
        gpus: that the server takes.
        notify: called with every step.

    Raises:
        MachineUnfit: engine or GPUs are missing.
    """
    run_dir.mkdir(parents=True, exist_ok=True)
    telling = _telling(space, candidate.engine, run_dir)
    request = TrialRequest(
        study=space.name,
        trial=trial,
        attempt=1,
        purpose=Purpose.VERIFY,
        candidate=candidate,
        space=telling,
        workload=telling.workload,
        run_dir=str(run_dir),
        gpus=gpus,
    )
    report = run_trial(request, gpus=tuple(range(gpus)), notify=notify, cancelled=lambda: False)
    return read_check(space, candidate, run_dir, report)


def _telling(space: Space, engine: str, run_dir: Path) -> Space:
    """The space with NCCL's log switched on and as little load as reaches every level."""
    own = space.engines[engine]
    env = {**own.env, **verification_env(str(run_dir))}
    engines = {**space.engines, engine: own.model_copy(update={"env": env})}
    little = {
        "output_tokens": min(16, space.workload.output_tokens),
        "rates": (),
        "requests_per_slot": 1,
        "min_requests": 1,
        "single_stream_min_requests": 1,
        "single_stream_max_requests": 1,
        "repeats": 1,
        "warmup_requests": 1,
    }
    workload = Workload.model_validate({**space.workload.model_dump(by_alias=True), **little})
    check = space.output_check.model_copy(update={"enabled": False})
    return space.model_copy(update={"engines": engines, "workload": workload, "output_check": check})


def read_check(space: Space, candidate: Candidate, run_dir: Path, report: TrialReport) -> KnobCheck:
    """What the files of such a launch say, on top of what its server reported."""
    log = run_dir / LOG
    own = own_all_reduce(first_lines(log)) if log.is_file() else None
    files = sorted(run_dir.glob("nccl.*"))
    reading = read_nccl_log(chain.from_iterable(map(_lines, files)))
    failure = report.outcome if isinstance(report.outcome, Failure) else None
    knobs = space.knobs_of(candidate.engine)
    sizes = _sizes(space, reading)
    found = []
    for item in report.activity:
        variable, value = knobs[item.knob].env, candidate.values.get(item.knob)
        if files and variable is not None and variable.startswith("NCCL_") and value is not None:
            state, reason = variable_activity(variable, spell(value), reading, sizes, own=own)
            found.append(KnobActivity(item.knob, state, reason))
        else:
            found.append(item)
    return KnobCheck(tuple(found), reading, own, failure)


def _lines(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8", errors="replace") as file:
        yield from file


def _sizes(space: Space, reading: NcclReading) -> tuple[int, ...]:
    """Bytes of the all-reduces of decode steps, up to the highest level."""
    width = _hidden_size(Path(space.model))
    if width is not None:
        return decode_sizes(width, range(1, max(space.workload.levels) + 1))
    return tuple(call.size_bytes for call in reading.calls if call.size_bytes <= _SMALL_MESSAGE_BYTES)


def _hidden_size(model: Path) -> int | None:
    """Width of a model given as a folder; that of the text part of a model of several."""
    try:
        config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    size = config.get("hidden_size", config.get("text_config", {}).get("hidden_size"))
    return size if isinstance(size, int) else None

"""A run that went wrong → what to call it."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from tuner.domain.load import LoadPoint
from tuner.domain.measurement import LevelResult
from tuner.domain.shortage import own_shortage
from tuner.loadgen.job import LoadResult
from tuner.loadgen.record import Trouble
from tuner.loadgen.target import Target
from tuner.trial.measure_events import MeasurementFailed, MeasurementTrouble, Stage
from tuner.trial.measure_level import count_errors

WRONG_LENGTH = frozenset({Trouble.SHORT, Trouble.LONG, Trouble.NO_TOKENS})
"""Answers in order but for their length; other request fields may help."""

_CONNECT_TIMEOUT_S = 2.0


def failure_of(
    result: LoadResult, stage: Stage, load: LoadPoint, target: Target, levels: Sequence[LevelResult]
) -> MeasurementFailed:
    """The failure that a run's records tell of.

    A broken connection alone does not: whether the server is gone is asked of the server, now.

    Args:
        result: the run.
        stage: what it was for.
        load: of the run.
        target: the server.
        levels: what had been measured before.

    Raises:
        OwnShortage: the server cannot be asked, for want of files, memory or ports.
    """
    errors = count_errors([result])
    troubles = {record.trouble for record in result.records}
    first = next(iter(errors), "no request was answered")
    if result.stall is not None:
        kind, message = MeasurementTrouble.STALLED, str(result.stall)
    elif result.dead or (Trouble.TRANSPORT in troubles and not _accepts_connections(target)):
        kind, message = MeasurementTrouble.DEAD_SERVER, f"the server went away: {first}"
    elif troubles & WRONG_LENGTH and troubles <= {*WRONG_LENGTH, Trouble.CUT, None}:
        kind, message = MeasurementTrouble.SHORT_OUTPUT, f"answers are not of the length asked for: {first}"
    else:
        kind, message = MeasurementTrouble.REQUESTS_FAILED, f"requests failed: {first}"
    return MeasurementFailed(
        kind,
        stage,
        message,
        load=load,
        stall=result.stall,
        errors=errors,
        tokens=sum(record.output_tokens for record in result.records),
        levels=levels,
    )


def _accepts_connections(target: Target) -> bool:
    try:
        socket.create_connection((target.host, target.port), timeout=_CONNECT_TIMEOUT_S).close()
    except OSError as error:
        if (shortage := own_shortage(error)) is not None:
            raise shortage from error
        return False
    return True

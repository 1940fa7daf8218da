"""Does an exported script still do what it did when it was measured?"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tuner.domain.candidate import Candidate
from tuner.domain.machine import changes, differences
from tuner.domain.measurement import Measured
from tuner.domain.outcome import FAILURES, Failure
from tuner.domain.recorded import Recorded, RecordedNumber, read_recorded
from tuner.domain.space import Space
from tuner.domain.trial import Purpose, TrialEvent, TrialReport, TrialRequest
from tuner.engines.catalogue import load_catalogue
from tuner.errors import UserError
from tuner.trial.denyfiles import host_deny_list, refuse_denied_script
from tuner.trial.runner import run_trial

TOLERANCE = 0.05
"""A value may be this much worse than recorded, as a share; where noise makes more of so few launches, that counts."""


@dataclass(frozen=True, slots=True)
class Checked:
    """One recorded number and its new values, one per launch.

    Attributes:
        recorded: as the script remembers it.
        values: positive.
        tolerance: share by which the new value may be worse, whatever the noise.
    """

    recorded: RecordedNumber
    values: tuple[float, ...]
    tolerance: float

    @property
    def now(self) -> float | None:
        """The geometric mean of the new values, as recorded ones are; None without any."""
        return statistics.geometric_mean(self.values) if self.values else None

    @property
    def change(self) -> float | None:
        """The new value over the recorded one, minus one."""
        return None if self.now is None else self.now / self.recorded.center - 1

    @property
    def allowed(self) -> float:
        """The worst value that so many launches may have."""
        return self.recorded.worst_allowed(self.tolerance, max(1, len(self.values)))

    @property
    def holds(self) -> bool:
        """Whether it is reached; False without any value."""
        return self.now is not None and self.recorded.holds(self.now, self.tolerance, len(self.values))


@dataclass(frozen=True, slots=True)
class Verification:
    """What came of measuring a script again.

    Attributes:
        recorded: what the script remembers.
        checks: one per recorded number.
        failures: launches that ended without a measurement.
        changed: fact about machine or versions → (as recorded, now).
        tolerance: share by which a value may be worse.
    """

    recorded: Recorded
    checks: tuple[Checked, ...]
    failures: tuple[Failure, ...] = ()
    changed: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    tolerance: float = TOLERANCE

    @property
    def holds(self) -> bool:
        """Whether every launch was measured and every number was reached again."""
        return not self.failures and all(check.holds for check in self.checks)

    @property
    def undecided(self) -> Failure | None:
        """A failure that says nothing about the script: of the machine, or of tuner itself."""
        return next((one for one in self.failures if FAILURES[one.failure_class].fault in ("machine", "tuner")), None)


def read_script(path: Path) -> Recorded:
    """What an exported script remembers.

    Raises:
        UserError: it cannot be read, or remembers nothing.
    """
    try:
        return read_recorded(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise UserError(f"{path}: cannot be read: {reason}", hint="give a script that `tuner export` wrote") from error


def verify(
    path: Path,
    run_root: Path,
    *,
    launches: int = 1,
    tolerance: float = TOLERANCE,
    notify: Callable[[TrialEvent], None] = lambda event: None,
) -> Verification:
    """Start the script, measure it with the recorded workload, and compare; nothing is left running.

    Args:
        path: the script.
        run_root: folder for logs and raw records.
        launches: how often; their mean counts.
        tolerance: share by which a value may be worse.
        notify: called with every step.

    Raises:
        UserError: the script cannot be read, remembers nothing, or is denied on this host.
        SpecError: a deny file of this host is wrong.
    """
    recorded = read_script(path)
    # Said here and not by a launch: what this host denies is no change of what the script does.
    catalogue = load_catalogue(recorded.engine, recorded.versions.get(recorded.engine))
    refuse_denied_script(path, recorded.engine, catalogue, host_deny_list())
    reports = []
    for number in range(1, launches + 1):
        request = _request(recorded, run_root / f"launch-{number}", number)
        gpus = tuple(range(recorded.gpus))
        report = run_trial(request, gpus=gpus, notify=notify, cancelled=lambda: False, script=path)
        reports.append(report)
        if isinstance(report.outcome, Failure):
            break  # the next one would fail as well
    return _compare(recorded, reports, tolerance)


def _request(recorded: Recorded, run_dir: Path, number: int) -> TrialRequest:
    space = Space.model_validate(
        {
            "name": "verify",
            "model": recorded.model,
            "hardware": {"gpus": recorded.gpus},
            "engines": {recorded.engine: {"command": recorded.program}},
            "workload": recorded.workload,
            # There is no reference to hold the answers against.
            "output_check": {"enabled": False},
        }
    )
    return TrialRequest(
        study=recorded.study,
        trial=recorded.trial,
        attempt=number,
        purpose=Purpose.VERIFY,
        candidate=Candidate.of(space, recorded.engine, {}),
        space=space,
        workload=recorded.workload,
        run_dir=str(run_dir),
        gpus=recorded.gpus,
        seed=int(time.time()) + number,
    )


def _compare(recorded: Recorded, reports: Sequence[TrialReport], tolerance: float) -> Verification:
    outcomes = [report.outcome for report in reports]
    measured = [outcome for outcome in outcomes if isinstance(outcome, Measured)]
    checks = []
    for number in recorded.numbers:
        found = [outcome.value(number.at) for outcome in measured]
        checks.append(Checked(number, tuple(value for value in found if value is not None and value > 0), tolerance))
    now = reports[-1]
    changed = differences(recorded.machine, now.machine)
    changed |= {f"version of {name}": change for name, change in changes(recorded.versions, now.versions).items()}
    failures = tuple(outcome for outcome in outcomes if isinstance(outcome, Failure))
    return Verification(recorded, tuple(checks), failures, changed, tolerance)

"""The report's part about the front: every configuration that was measured, and where it stands."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.domain.front import Front, Standing, broken_words
from tuner.domain.proof import Confirmation
from tuner.export.base import numbers_of
from tuner.export.report_facts import Figure, Table
from tuner.export.report_proof import configuration, estimate


def trial_list(trials: Sequence[int]) -> str:
    """`3, 7, 12`, cut after eight."""
    most = 8
    shown = ", ".join(map(str, trials[:most]))
    return shown if len(trials) <= most else f"{shown} and {len(trials) - most} more"


def front_parts(front: Front, chosen: Standing | None, found: Confirmation | None) -> tuple[str | Table | Figure, ...]:
    """The drawing, what it is made of, and the same as a table."""
    told = (
        "Median of all launches of a configuration, with 95 % intervals from launch to launch. What stands high after "
        "a single launch is partly lucky; only a confirmation says what is real."
    )
    if found is not None:
        told += (
            " What is `confirmed` has the mean of the confirmation's launches alone; where it stands, all of its "
            "launches decided."
        )
    return Figure("front"), told, _table(front, chosen, found)


def _table(front: Front, chosen: Standing | None, found: Confirmation | None) -> Table:
    columns = [
        "place",
        "trials",
        *(f"{goal.label} [{goal.metric.unit}]" for goal in front.goals),
        "configuration",
        "note",
    ]
    groups = (("front", front.members), ("beaten", front.beaten), ("over limit", front.infeasible))
    rows = []
    for place, standings in groups:
        for standing in standings:
            numbers = numbers_of(front, standing, found)
            values = [estimate(number.estimate) for number in numbers]
            said = (
                "confirmed" if any(number.confirmed for number in numbers) else "",
                "chosen" if standing is chosen else "",
                "baseline" if standing.is_baseline else "baseline of its engine" if front.is_start(standing) else "",
                f"breaks {broken_words(standing.broken, standing.of_its_time)}" if standing.broken else "",
            )
            note = ", ".join(filter(None, said))
            rows.append((place, trial_list(standing.trials), *values, configuration(front, standing.candidate), note))
    return Table(tuple(columns), tuple(rows), numbers=tuple(range(2, 2 + len(front.goals))))

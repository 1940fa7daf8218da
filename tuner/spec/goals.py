"""Do objectives and limits ask for what can be measured, and what tells configurations apart?"""

from __future__ import annotations

from tuner.domain.measurement import Metric
from tuner.domain.space import Limit, Space
from tuner.spec.findings import Findings

_MOST_TIMES = 10
"""A bound above so many times the baseline's value was meant in percent."""


def check_goals(space: Space, findings: Findings) -> None:
    """Check what every objective and limit measures; that its load is sent is checked by the space itself."""
    for kind, items in (("objectives", space.objectives), ("limits", space.limits)):
        for index, wanted in enumerate(items):
            if wanted.metric is not Metric.GOODPUT_S or findings.left_out("workload", "goodput"):
                continue
            if space.workload.goodput is None:
                message = "goodput_s counts good requests, and nothing says which are good"
                findings.error((kind, index, "metric"), message, "give workload.goodput, such as {ttft_ms: 500}")
    for index, limit in enumerate(space.limits):
        _check_share(index, limit, findings)
    for index, goal in enumerate(space.objectives):
        if goal.rate is not None and goal.metric.follows_arrivals:
            findings.warn(
                ("objectives", index),
                f"at a fixed rate, {goal.metric.words} is that of the arrivals until the server saturates",
                "a latency or goodput_s tells configurations apart there; throughput does so at a level",
            )


def _check_share(index: int, limit: Limit, findings: Findings) -> None:
    for key, share in (("min_of_baseline", limit.min_of_baseline), ("max_of_baseline", limit.max_of_baseline)):
        if share is None or 0 < share <= _MOST_TIMES:
            continue
        if share <= 0:
            message, hint = "must be above 0: it is a share of the baseline's value", "0.95 is 95 % of it"
        else:
            message = f"{share:g} is {share * 100:,.0f} % of the baseline's value: a share is meant"
            hint = f"for {share:g} % write {share / 100:g}"
        findings.error(("limits", index, key), message, hint)

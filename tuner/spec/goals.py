"""Do objectives and limits ask for what can be measured, and what tells configurations apart?"""

from __future__ import annotations

from tuner.domain.measurement import Metric
from tuner.domain.space import Space
from tuner.spec.findings import Findings


def check_goals(space: Space, findings: Findings) -> None:
    """Check what every objective and limit measures; that its load is sent is checked by the space itself."""
    for kind, items in (("objectives", space.objectives), ("limits", space.limits)):
        for index, wanted in enumerate(items):
            if wanted.metric is not Metric.GOODPUT_S or findings.left_out("workload", "goodput"):
                continue
            if space.workload.goodput is None:
                message = "goodput_s counts good requests, and nothing says which are good"
                findings.error((kind, index, "metric"), message, "give workload.goodput, such as {ttft_ms: 500}")
    for index, goal in enumerate(space.objectives):
        if goal.rate is not None and goal.metric.follows_arrivals:
            findings.warn(
                ("objectives", index),
                f"at a fixed rate, {goal.metric.words} is that of the arrivals until the server saturates",
                "a latency or goodput_s tells configurations apart there; throughput does so at a level",
            )

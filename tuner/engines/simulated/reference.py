"""The best points of a performance model, so that a search can be judged against what was there to be found.

    python -m tuner.engines.simulated.reference sm120 FILE.json

Found by descent over single and paired changes from several starts; a test holds that no single change of a listed
point is better. Settings that corrupt answers do not count.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tuner.engines.simulated.flags import FLAVORS
from tuner.engines.simulated.model import Truth, truth
from tuner.engines.simulated.modelfile import SimModel, load_model

KEPT_THROUGHPUT = 0.97
"""Share of the default's throughput that the best balanced point must keep."""

SPACE: Mapping[str, tuple[Any, ...]] = {
    "NCCL_PROTO": (None, "LL", "LL128", "Simple"),
    "NCCL_ALGO": (None, "Ring", "ring,tree;allreduce:tree"),
    "NCCL_P2P_LEVEL": (None, "SYS"),
    "NCCL_P2P_DISABLE": (None, 1),
    "NCCL_MIN_NCHANNELS": (None, 16, 32),
    "NCCL_MAX_NCHANNELS": (None, 1, 2, 3, 4, 6),
    "NCCL_BUFFSIZE": (None, 1 << 20, 8 << 20),
    "--enable-custom-all-reduce": (None, True),
    "--attention-backend": (None, "flashinfer", "torch_native"),
    "--disable-cuda-graph": (None, True),
    "--cuda-graph-max-bs-decode": (None, 8, 32, 56, 128),
    "--num-continuous-decode-steps": (None, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16),
    "--chunked-prefill-size": (None, 2048, 4096, 16384),
    "--max-running-requests": (None, 64, 128),
    "--mem-fraction-static": (None, 0.8, 0.88, 0.9),
    "--kv-cache-dtype": (None, "fp8_e4m3", "fp8_e5m2"),
    "--disable-overlap-schedule": (None, True),
    "--page-size": (None, 1, 16, 32, 64),
    "--schedule-policy": (None, "lpm"),
}
"""Where is searched; None leaves a setting out."""

Point = Mapping[str, Any]
Score = Callable[[Truth], float]


def goals(model: SimModel, flavor: str) -> dict[str, Score]:
    """Goal → what it maximizes; a launch that fails scores below every one that serves."""
    base = truth(model, flavor, {}).rates[128]

    def balanced(found: Truth) -> float:
        share = found.rates[128] / base
        return found.rates[1] if share >= KEPT_THROUGHPUT else share - 1.0

    return {
        "single_stream": lambda found: found.rates[1],
        "throughput": lambda found: found.rates[128],
        "balanced": balanced,
    }


def score_of(model: SimModel, flavor: str, point: Point, score: Score) -> float:
    """Score of a point; minus infinity for one that fails or answers wrongly."""
    found = truth(model, flavor, point)
    return float("-inf") if found.failure is not None or found.corrupts else score(found)


def neighbours(point: Point, *, changes: int = 1) -> Iterator[Point]:
    """Every point that differs in exactly so many settings."""
    for names in itertools.combinations(SPACE, changes):
        choices = [[value for value in SPACE[name] if value != point.get(name)] for name in names]
        for values in itertools.product(*choices):
            yield {**point, **dict(zip(names, values, strict=True))}


def climb(model: SimModel, flavor: str, start: Point, score: Score) -> tuple[dict[str, Any], float]:
    """Best point that single changes reach, then pairs where no single change helps."""
    best, value = dict(start), score_of(model, flavor, start, score)
    while True:
        for changes in (1, 2):
            found = max(
                ((score_of(model, flavor, other, score), other) for other in neighbours(best, changes=changes)),
                key=lambda pair: pair[0],
            )
            if found[0] > value + 1e-9:
                value, best = found[0], dict(found[1])
                break
        else:
            return _without_idle(model, flavor, best, score, value), value


def _without_idle(model: SimModel, flavor: str, point: Point, score: Score, value: float) -> dict[str, Any]:
    """The point without settings that change nothing."""
    kept = {name: setting for name, setting in point.items() if setting is not None}
    for name in list(kept):
        rest = {other: setting for other, setting in kept.items() if other != name}
        if score_of(model, flavor, rest, score) >= value - 1e-9:
            kept = rest
    return kept


def reference(model: SimModel) -> dict[str, Any]:
    """Flavor → goal → best settings and their true rates at C=1 and C=128."""
    starts: tuple[Point, ...] = (
        {},
        {"NCCL_PROTO": "LL", "NCCL_ALGO": "Ring", "--num-continuous-decode-steps": 4},
        {"--enable-custom-all-reduce": True},
        {"NCCL_PROTO": "LL", "--kv-cache-dtype": "fp8_e5m2"},
        {"NCCL_PROTO": "LL", "--attention-backend": "flashinfer", "--cuda-graph-max-bs-decode": 8},
    )
    flavors: dict[str, Any] = {}
    for flavor in FLAVORS:
        flavors[flavor] = {}
        for goal, score in goals(model, flavor).items():
            point, _value = max((climb(model, flavor, start, score) for start in starts), key=lambda found: found[1])
            rates = truth(model, flavor, point).rates
            flavors[flavor][goal] = {
                "settings": point,
                "single_stream": round(rates[1], 3),
                "throughput": round(rates[128], 2),
            }
    return {"model": model.name, "simulated": True, "kept_throughput": KEPT_THROUGHPUT, "flavors": flavors}


if __name__ == "__main__":
    found = reference(load_model(sys.argv[1]))
    Path(sys.argv[2]).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")

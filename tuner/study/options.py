"""What a command asks of a study, and how that is kept with it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from tuner.search.samplers import DEFAULT as DEFAULT_SAMPLER

ENGINES = "engines"
"""Among a record's overrides: the engines that the study has, of those in its space file, with commas between."""
WARM_START = "warm_start"
"""Among a record's overrides: the earlier studies that teach this one, as a JSON list."""


@dataclass(frozen=True, slots=True)
class BudgetOptions:
    """What the command line says about a study's budget; None leaves the space file's own value."""

    trials: int | None = None
    timeout_s: float | None = None
    gpu_hours: float | None = None
    stop_below: float | None = None

    @property
    def changes(self) -> dict[str, int | float]:
        """Dotted path in the space file → value that replaces it."""
        found = {
            "budget.trials": self.trials,
            "budget.hours": None if self.timeout_s is None else self.timeout_s / 3600,
            "budget.gpu_hours": self.gpu_hours,
            "budget.stop_below_gain": self.stop_below,
        }
        return {path: value for path, value in found.items() if value is not None}


@dataclass(frozen=True, slots=True)
class StartOptions:
    """What `tuner study start` was asked for; None leaves the space file's own value, and no engines means all."""

    space: str
    name: str | None = None
    budget: BudgetOptions = field(default_factory=BudgetOptions)
    seed: int = 0
    model: str | None = None
    engines: tuple[str, ...] = ()
    sampler: str = DEFAULT_SAMPLER
    warm_start: tuple[str, ...] = ()
    probe: bool | None = None
    gpus: int | None = None

    @property
    def space_changes(self) -> dict[str, int | float | str]:
        """Dotted path in the space file → value that replaces it."""
        named = {"model": self.model, "probe": self.probe, "hardware.gpus": self.gpus}
        return {**self.budget.changes, **{path: value for path, value in named.items() if value is not None}}

    @property
    def overrides(self) -> dict[str, str]:
        """All of it that a record keeps, as text; see `split_overrides`."""
        return {
            **{path: str(value) for path, value in self.space_changes.items()},
            **({ENGINES: ",".join(self.engines)} if self.engines else {}),
            **({WARM_START: json.dumps(self.warm_start)} if self.warm_start else {}),
        }


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a study runs here: the Ray cluster to join (None starts Ray here), launches at a time, warm launches."""

    ray_address: str | None = None
    parallel: int = 1
    warm: bool = False


def split_overrides(overrides: Mapping[str, str]) -> tuple[tuple[str, ...], dict[str, str]]:
    """Of a record's overrides: the engines that were chosen (none for all), and the values that replace the file's."""
    engines = tuple(overrides[ENGINES].split(",")) if ENGINES in overrides else ()
    return engines, {path: text for path, text in overrides.items() if path not in (ENGINES, WARM_START)}

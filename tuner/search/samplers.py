"""Every sampler that a study can name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from importlib.util import find_spec
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from tuner.errors import UserError
from tuner.search.notebook import ENGINE

DEFAULT = "tuner"

Distributions = Mapping[str, BaseDistribution]


def _tpe(seed: int, _: Distributions) -> BaseSampler:
    return optuna.samplers.TPESampler(seed=seed, multivariate=True, group=True)


def _gp(seed: int, _: Distributions) -> BaseSampler:
    return optuna.samplers.GPSampler(seed=seed, warn_independent_sampling=False)


def _cmaes(seed: int, _: Distributions) -> BaseSampler:
    return optuna.samplers.CmaEsSampler(seed=seed, warn_independent_sampling=False)


def _grid(seed: int, distributions: Distributions) -> BaseSampler:
    if ENGINE in distributions:
        raise UserError("the sampler grid cannot share a budget between engines", hint="name one engine, or use random")
    points = 1
    for values in (axes := {name: _grid_values(d) for name, d in distributions.items()}).values():
        points *= len(values)
    if points > _MAX_GRID:
        raise UserError(
            f"the sampler grid would lay out {points:.3g} points; it can do {_MAX_GRID}",
            hint="use another sampler, or fewer knobs and values",
        )
    return _Grid(axes, seed=seed)


_MAX_GRID = 100_000


class _Grid(optuna.samplers.GridSampler):
    """Optuna's grid without its end: that stops `Study.optimize`, and is an error under ask and tell."""

    def after_trial(
        self, study: optuna.Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        """Leave the end of the study to its loop."""


def _grid_values(distribution: BaseDistribution) -> list[Any]:
    match distribution:
        case CategoricalDistribution():
            return list(distribution.choices)
        case IntDistribution():
            return list(range(distribution.low, distribution.high + 1, distribution.step))
        case FloatDistribution(step=float() as step):
            count = round((distribution.high - distribution.low) / step) + 1
            return [distribution.low + i * step for i in range(count)]
    raise TypeError(f"no grid for {distribution}")


OPTUNA_SAMPLERS: Mapping[str, Callable[[int, Distributions], BaseSampler]] = {
    "tpe": _tpe,
    "nsga2": lambda seed, _: optuna.samplers.NSGAIISampler(seed=seed),
    "nsga3": lambda seed, _: optuna.samplers.NSGAIIISampler(seed=seed),
    "gp": _gp,
    "cmaes": _cmaes,
    "qmc": lambda seed, _: optuna.samplers.QMCSampler(
        seed=seed, warn_independent_sampling=False, warn_asynchronous_seeding=False
    ),
    "random": lambda seed, _: optuna.samplers.RandomSampler(seed=seed),
    "grid": _grid,
}
"""Name → maker of one of Optuna's samplers, given a seed and the study's distributions."""

SAMPLER_NAMES = (DEFAULT, *OPTUNA_SAMPLERS)
_NEEDS = {"gp": ("torch", "'tuner[gp]'"), "cmaes": ("cmaes", "cmaes")}
"""Sampler → the package that it needs besides Optuna, and what installs it."""


def refuse_sampler(name: str, *, objectives: int) -> None:
    """Whether a study can have this sampler, as far as can be told before its space is laid out.

    Raises:
        UserError: when there is none of this name, it needs a package that is missing, or it cannot do the study.
    """
    if name not in SAMPLER_NAMES:
        near = get_close_matches(name, SAMPLER_NAMES, n=1)
        hint = f"did you mean {near[0]}?" if near else f"choose one of {', '.join(SAMPLER_NAMES)}"
        raise UserError(f"there is no sampler {name}", hint=hint)
    if name == "cmaes" and objectives > 1:
        raise UserError("the sampler cmaes can do one objective only", hint="use tuner, tpe, nsga2 or gp")
    package, install = _NEEDS.get(name, (None, ""))
    if package is not None and find_spec(package) is None:
        raise UserError(f"the sampler {name} needs the package {package}", hint=f"install it: pip install {install}")


SEEDS = 2**32
"""So many seeds Optuna's samplers tell apart; ours may be larger."""


def optuna_sampler(name: str, *, seed: int, distributions: Distributions, objectives: int) -> BaseSampler:
    """One of Optuna's own samplers by name.

    Raises:
        UserError: see `refuse_sampler`; or this sampler cannot lay out the space.
    """
    refuse_sampler(name, objectives=objectives)
    return OPTUNA_SAMPLERS[name](seed % SEEDS, distributions)

"""Our own search method as an Optuna sampler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.study import Study
from optuna.trial import FrozenTrial

from tuner.search.history import Observation
from tuner.search.notebook import ENGINE, Notebook
from tuner.search.proposer import Choice, Proposer
from tuner.search.samplers import SEEDS


class TunerSampler(BaseSampler):
    """Proposes whole candidates: all parameters of a trial are chosen together.

    It keeps no state between trials: each proposal follows from the seed and the study's trials alone.

    Args:
        notebook: of the study's space.
        seed: of every random choice.
        hints: engine → observations of earlier studies.
    """

    def __init__(
        self,
        notebook: Notebook,
        *,
        seed: int,
        hints: Mapping[str, Sequence[Observation]] | None = None,
    ) -> None:
        self._notebook = notebook
        self._proposers = {
            engine: Proposer(lattice, seed=seed, hints=(hints or {}).get(engine, ()))
            for engine, lattice in notebook.lattices.items()
        }
        self._unforeseen = RandomSampler(seed=seed % SEEDS)
        self.choices: dict[int, Choice] = {}
        """Trial number → what was chosen for it and why; of trials sampled by this object only."""

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """All knobs of all engines: they are chosen together."""
        return self._notebook.distributions

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The engine's active knobs; the engine is the one fixed before, or the space's only one.

        Raises:
            SpaceExhausted: when nothing is left to propose.
        """
        engine = trial.params.get(ENGINE, next(iter(self._notebook.lattices)))
        history = self._notebook.history(study.get_trials(deepcopy=False), engine)
        choice = self._proposers[engine].propose(history)
        self.choices[trial.number] = choice
        return self._notebook.parameters(engine, choice.point)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """A parameter that is none of the space's knobs: at random."""
        return self._unforeseen.sample_independent(study, trial, param_name, param_distribution)

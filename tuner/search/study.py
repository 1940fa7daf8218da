"""A search that keeps its notes in an Optuna study: the one entrance to this package for a study's loop."""

from __future__ import annotations

import contextlib
import warnings
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from tuner.domain.candidate import Candidate
from tuner.domain.load import LoadPoint
from tuner.domain.outcome import FailureClass
from tuner.domain.space import Space
from tuner.domain.trial import Cutoff, Purpose
from tuner.errors import InternalError, StudyError
from tuner.search.base import (
    Explanation,
    Infeasible,
    KnobImportance,
    Partial,
    PriorObservation,
    Proposal,
    RemainingGain,
    Restated,
    Scored,
    SpaceExhausted,
    Verdict,
)
from tuner.search.beliefs import MIN_SUCCESSES, Beliefs, FitsKept
from tuner.search.cutoff import cutoffs
from tuner.search.explanation import WHY, note_explanation, read_explanation
from tuner.search.finalists import finalists
from tuner.search.history import History
from tuner.search.insight import knob_importance, remaining_gain
from tuner.search.lattice import Lattice
from tuner.search.notebook import ENGINE, LAUNCH, Notebook, candidate_of, is_number, queued
from tuner.search.sampler import TunerSampler
from tuner.search.samplers import DEFAULT, optuna_sampler
from tuner.search.screening import Screening
from tuner.search.storage import Patience, at_once, storage_at, study_in

_MAX_REPEATED_ASKS = 20
"""So often a sampler may come up with what is not worth a launch before a random new candidate takes its place."""

_PURPOSE = "purpose"
_SKIPPED = "skipped"


def open_search(
    space: Space,
    *,
    storage_url: str | None,
    study_name: str,
    baselines: Mapping[str, Candidate],
    seed: int = 0,
    sampler: str = DEFAULT,
    hints: Sequence[PriorObservation] = (),
    patience: Patience = at_once,
) -> Search:
    """Open a study's search, or make it.

    A new search has the baselines in its queue, as often as the space's budget says, in the space's order. Opening an
    existing one with another sampler or seed is allowed: what was told stays.

    Args:
        space: the space file; it must be the same (knobs, baselines, objectives) each time.
        storage_url: SQLAlchemy URL of the database; None keeps the notes in memory.
        study_name: name of the Optuna study.
        baselines: engine → baseline; engines that are not named take no part.
        seed: of every random choice.
        sampler: one of `tuner.search.samplers.SAMPLER_NAMES`.
        hints: results of earlier studies (our own sampler uses them, the others do not).
        patience: what calls of the database are wrapped in.

    Raises:
        UserError: for a sampler that does not exist, or cannot do this study.
        StudyError: when the stored study has other objectives.
        StorageError: when the database does not answer.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    lattices = {engine: Lattice(space, engine, baselines[engine]) for engine in space.engines if engine in baselines}
    notebook = Notebook(space, lattices)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        chosen: optuna.samplers.BaseSampler
        if sampler == DEFAULT:
            chosen = TunerSampler(notebook, seed=seed, hints=notebook.hints(hints))
        else:
            chosen = optuna_sampler(
                sampler, seed=seed, distributions=notebook.distributions, objectives=len(notebook.objectives)
            )
        study = study_in(storage_at(storage_url, patience), study_name, chosen, notebook.objectives)
    search = Search(study, notebook, seed, space=space, hints=hints if sampler == DEFAULT else ())
    search.queue_baselines(baselines, space.budget.baseline_launches)
    return search


def delete_search(storage_url: str, study_name: str) -> None:
    """Remove a search's notes; one that does not exist is no error."""
    with contextlib.suppress(KeyError):
        optuna.delete_study(study_name=study_name, storage=storage_at(storage_url))


class Search:
    """The `tuner.search.base.Search` over one Optuna study; made by `open_search`."""

    def __init__(
        self,
        study: optuna.Study,
        notebook: Notebook,
        seed: int,
        *,
        space: Space,
        hints: Sequence[PriorObservation] = (),
    ) -> None:
        self._study = study
        self._space = space
        self._hints = hints
        self._notebook = notebook
        self._seed = seed
        self._fits: dict[str, FitsKept] = {engine: {} for engine in notebook.lattices}

    def queue_baselines(self, baselines: Mapping[str, Candidate], launches: int) -> None:
        """Queue each engine's baseline until it has had `launches` turns, engine after engine in every round."""
        known = Counter(
            candidate.engine
            for trial in self._trials()
            if trial.user_attrs.get(_PURPOSE) == Purpose.BASELINE and (candidate := candidate_of(trial))
        )
        for turn in range(launches):
            for engine in self._notebook.lattices:
                if known[engine] <= turn:
                    self.enqueue(baselines[engine], Purpose.BASELINE)

    def _trials(self) -> list[FrozenTrial]:
        return self._study.get_trials(deepcopy=False)

    def enqueue(self, candidate: Candidate, purpose: Purpose) -> None:
        """See `tuner.search.base.Search.enqueue`."""
        self._queue(candidate, purpose, _WORDS.get(purpose, "queued"))

    def _queue(self, candidate: Candidate, purpose: Purpose, why: str) -> None:
        point = self._notebook.lattices[candidate.engine].encode(candidate)
        self._study.enqueue_trial(
            self._notebook.parameters(candidate.engine, point),
            user_attrs=queued(candidate) | {_PURPOSE: purpose.value, WHY: why},
        )

    def rest(self, engine: str, knobs: Collection[str]) -> None:
        """See `tuner.search.base.Search.rest`."""
        self._notebook.lattices[engine].rest(knobs)

    def propose(self, candidate: Candidate, purpose: Purpose) -> Proposal:
        """See `tuner.search.base.Search.propose`."""
        point = self._notebook.lattices[candidate.engine].encode(candidate)
        parameters = self._notebook.parameters(candidate.engine, point)
        # One write makes it pending: a queued trial whose asker dies would come up later, when nobody wants it.
        self._study.add_trial(
            create_trial(
                state=TrialState.RUNNING,
                params=parameters,
                distributions={name: self._notebook.distributions[name] for name in parameters},
                user_attrs=queued(candidate) | {_PURPOSE: purpose.value, WHY: _WORDS[purpose]},
            )
        )
        frozen = self._trials()[-1]
        self._notebook.note_candidate(Trial(self._study, frozen._trial_id), candidate, point)
        return _proposal(frozen, candidate)

    def ask(self) -> Proposal:
        """See `tuner.search.base.Search.ask`."""
        if any(trial.state is TrialState.WAITING for trial in self._trials()):
            return self._from_queue(self._study.ask())
        launches = {engine: len(self._history(engine).all) for engine in self._notebook.lattices}
        # All engines get the same share of the budget; one whose candidates are used up leaves its share to the others.
        for engine in sorted(launches, key=lambda name: launches[name]):
            with contextlib.suppress(SpaceExhausted):
                return self._for_engine(engine)
        raise SpaceExhausted

    def _from_queue(self, trial: Trial) -> Proposal:
        frozen = self._trials()[trial.number]
        candidate = candidate_of(frozen)
        assert candidate is not None, "only candidates are queued"
        engine, _ = self._notebook.suggest(trial)
        self._notebook.note_candidate(trial, candidate, self._notebook.lattices[engine].encode(candidate))
        return _proposal(frozen, candidate)

    def _for_engine(self, engine: str) -> Proposal:
        """A new candidate of one engine.

        Raises:
            SpaceExhausted: when it has none left.
        """
        for _ in range(_MAX_REPEATED_ASKS):
            proposal = self._ask_sampler(engine)
            if proposal is not None:
                return proposal
        rng = np.random.default_rng([self._seed, len(self._trials())])
        candidate = self._notebook.lattices[engine].decode(self._screening(engine).at_random(rng))
        self._queue(candidate, Purpose.SEARCH, "at random: the sampler had nothing new")
        return self._from_queue(self._study.ask())

    def _ask_sampler(self, engine: str) -> Proposal | None:
        """One proposal of the sampler, or None when it is not worth a launch: it is told so, and nothing counts."""
        sampler, lattice = self._study.sampler, self._notebook.lattices[engine]
        if len(self._notebook.lattices) > 1:
            self._study.enqueue_trial({ENGINE: engine})
        trial = self._study.ask()
        try:
            _, point = self._notebook.suggest(trial)
        except SpaceExhausted:
            self._study.tell(trial, state=TrialState.FAIL)
            raise
        choice = sampler.choices.get(trial.number) if isinstance(sampler, TunerSampler) else None
        objection = self._screening(engine).objection(point) if choice is None else None
        if objection is not None:
            if objection.infeasible:
                trial.set_constraint(LAUNCH, 1.0)
            trial.set_user_attr(_SKIPPED, objection.reason)
            self._study.tell(trial, state=TrialState.PRUNED if objection.infeasible else TrialState.FAIL)
            return None
        why = f"proposed by the sampler {type(sampler).__name__}" if choice is None else choice.why
        candidate = lattice.decode(point)
        if choice is not None:
            note_explanation(trial, candidate, choice, space=self._space, notebook=self._notebook, hints=self._hints)
        self._notebook.note_candidate(trial, candidate, point)
        trial.set_user_attr(_PURPOSE, Purpose.SEARCH.value)
        trial.set_user_attr(WHY, why)
        return Proposal(trial.number, candidate, why)

    def tell(self, trial: int, verdict: Verdict) -> None:
        """See `tuner.search.base.Search.tell`."""
        frozen = self._open_trial(trial)
        objectives = len(self._notebook.objectives)
        if isinstance(verdict, Scored | Partial) and len(verdict.values) != objectives:
            raise InternalError(f"trial {trial}: {len(verdict.values)} values for {objectives} objectives")
        if isinstance(verdict, Scored) and not all(is_number(value) for value in verdict.values):
            verdict = Infeasible(FailureClass.SHORT_OUTPUT, verdict.seconds)
        state, told = self._notebook.note_verdict(Trial(self._study, frozen._trial_id), verdict)
        self._study.tell(trial, told, state=state)

    def _open_trial(self, trial: int) -> FrozenTrial:
        trials = self._trials()
        if not 0 <= trial < len(trials) or trials[trial].state.is_finished():
            raise InternalError(f"trial {trial} is not waiting for a verdict")
        return trials[trial]

    def restate(self, launches: Mapping[int, Restated]) -> None:
        """See `tuner.search.base.Search.restate`."""
        self._notebook.restate(launches)

    def abandon(self, trial: int) -> None:
        """See `tuner.search.base.Search.abandon`."""
        self._open_trial(trial)
        self._study.tell(trial, state=TrialState.FAIL)

    @property
    def pending(self) -> Mapping[int, Proposal]:
        """See `tuner.search.base.Search.pending`."""
        running = [trial for trial in self._trials() if trial.state is TrialState.RUNNING]
        return {t.number: _proposal(t, candidate) for t in running if (candidate := candidate_of(t)) is not None}

    def finalists(self, engine: str, count: int, before: int | None = None) -> Sequence[Candidate]:
        """See `tuner.search.base.Search.finalists`."""
        trials = self._trials() if before is None else self._trials()[:before]
        lattice, history = self._notebook.lattices[engine], self._notebook.history(trials, engine)
        if len(history.successes) < MIN_SUCCESSES:
            return []
        return [lattice.decode(point) for point in finalists(Beliefs(lattice, history), count)]

    def explain(self, trial: int) -> Explanation:
        """See `tuner.search.base.Search.explain`."""
        trials = self._trials()
        candidate = candidate_of(trials[trial]) if 0 <= trial < len(trials) else None
        if candidate is None:
            raise StudyError(f"the study {self._study.study_name} has no trial {trial}")
        return read_explanation(trial, candidate, trials[trial].user_attrs)

    def importance(self) -> Sequence[KnobImportance]:
        """See `tuner.search.base.Search.importance`."""
        found: list[KnobImportance] = []
        for engine in self._notebook.lattices:
            if (beliefs := self._beliefs(engine)) is not None:
                for k, goal in enumerate(self._notebook.objectives):
                    found += knob_importance(beliefs, k, goal.label)
        return found

    def cutoffs(self, trial: int, loads: Sequence[LoadPoint]) -> Sequence[Cutoff]:
        """See `tuner.search.base.Search.cutoffs`."""
        candidate = candidate_of(self._open_trial(trial))
        assert candidate is not None, "a pending trial has a candidate"
        beliefs = self._beliefs(candidate.engine)
        if beliefs is None:
            return ()
        point = self._notebook.lattices[candidate.engine].encode(candidate)
        return cutoffs(beliefs, self._notebook, point, loads)

    def remaining_gain(self, confidence: float = 0.9) -> RemainingGain | None:
        """See `tuner.search.base.Search.remaining_gain`."""
        found = []
        for engine in self._notebook.lattices:
            beliefs = self._beliefs(engine)
            if beliefs is None:
                return None
            rng = np.random.default_rng([self._seed, len(beliefs.history.all), 1])
            found.append(remaining_gain(beliefs, confidence, rng))
        return max(found, key=lambda gain: gain.upper)

    def _beliefs(self, engine: str) -> Beliefs | None:
        history = self._history(engine)
        if len(history.successes) < MIN_SUCCESSES:
            return None
        return Beliefs(self._notebook.lattices[engine], history, fits=self._fits[engine])

    def _screening(self, engine: str) -> Screening:
        return Screening(self._notebook.lattices[engine], self._history(engine))

    def _history(self, engine: str) -> History:
        return self._notebook.history(self._trials(), engine)


def _proposal(trial: FrozenTrial, candidate: Candidate) -> Proposal:
    purpose = Purpose(trial.user_attrs.get(_PURPOSE, Purpose.SEARCH))
    return Proposal(trial.number, candidate, trial.user_attrs.get(WHY, ""), purpose)


_WORDS: Mapping[Purpose, str] = {
    Purpose.BASELINE: "the baseline, to compare with",
    Purpose.SENTINEL: "the baseline again, to see whether the machine drifts",
    Purpose.SECOND_CHANCE: "values that were set aside after failures, once more before the search ends",
    Purpose.CONFIRM: "relaunched to confirm its result",
    Purpose.ABLATE: "to see which settings carry the gain",
    Purpose.VERIFY: "to see whether the settings take effect",
}

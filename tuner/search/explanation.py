"""Why a candidate was proposed, kept with its trial: what was believed then cannot be told from later data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from optuna.trial import Trial

from tuner.domain.candidate import Candidate
from tuner.domain.outcome import FailureClass
from tuner.domain.space import Space
from tuner.domain.values import same, spell
from tuner.search.base import EarlierResult, Explanation, Prediction, PriorObservation
from tuner.search.insight import teaches
from tuner.search.notebook import Notebook
from tuner.search.proposer import Choice

WHY = "why"
_BELIEVED = "believed"
_Z95 = 1.96


def note_explanation(
    trial: Trial,
    candidate: Candidate,
    choice: Choice,
    *,
    space: Space,
    notebook: Notebook,
    hints: Sequence[PriorObservation],
) -> None:
    """Keep with a trial what `read_explanation` will tell of it.

    Args:
        trial: the trial.
        candidate: what it launches.
        choice: how our own sampler came to it.
        space: the space file.
        notebook: of the study.
        hints: results of earlier studies that the sampler knows.
    """
    lattice = notebook.lattices[candidate.engine]
    facts = {
        **_model_facts(notebook, choice),
        **_prior_facts(space, candidate, lattice.decode(lattice.baseline)),
        **_hint_facts(hints, candidate, [goal.label for goal in notebook.objectives]),
    }
    if facts:
        trial.set_user_attr(_BELIEVED, facts)


def _model_facts(notebook: Notebook, choice: Choice) -> Mapping[str, Any]:
    """What the models expected and doubted; nothing when there was no model yet."""
    beliefs = choice.beliefs
    if beliefs is None:
        return {}
    mean, sd = beliefs.predict(choice.point[None])
    predictions = {}
    for k, goal in enumerate(notebook.objectives):
        half = _Z95 * float(np.hypot(sd[0, k], beliefs.objectives[k].launch_noise))
        ends = sorted(notebook.value(k, float(mean[0, k]) + shift) for shift in (-half, half))
        predictions[goal.label] = [notebook.value(k, float(mean[0, k])), *ends]
    return {
        "predictions": predictions,
        "failure_chance": float(beliefs.failures.assess(choice.point[None]).chance[0]),
        "suspects": dict(beliefs.failures.suspects(choice.point)),
        "teaches": dict(teaches(beliefs, choice.point)),
    }


def _hint_facts(hints: Sequence[PriorObservation], candidate: Candidate, labels: Sequence[str]) -> Mapping[str, Any]:
    """What earlier studies contribute: how many launches each, and what they had seen of this very candidate."""
    counts = Counter(hint.study for hint in hints if hint.candidate.engine == candidate.engine)
    seen = [
        {
            "study": hint.study,
            "trial": hint.trial,
            "gains": {label: r - 1 for label, r in zip(labels, hint.ratios, strict=True) if r is not None},
            "doubt": hint.doubt,
            "failure": None if hint.failure is None else hint.failure.value,
        }
        for hint in hints
        if hint.candidate.fingerprint == candidate.fingerprint
    ]
    return {"hints": dict(counts), "earlier": seen} if counts else {}


def _prior_facts(space: Space, candidate: Candidate, baseline: Candidate) -> Mapping[str, Any]:
    """Which of the values that a candidate changes the space file expected to be good, and why."""
    knobs = space.knobs_of(candidate.engine)
    likely = {
        f"{name}={spell(value)}": prior.reason
        for name, (_, value) in candidate.differs_from(baseline).items()
        if name in candidate.values
        and (prior := knobs[name].prior) is not None
        and any(same(value, good) for good in prior.likely)
    }
    return {"likely": likely} if likely else {}


def read_explanation(trial: int, candidate: Candidate, attributes: Mapping[str, Any]) -> Explanation:
    """The explanation of a stored trial."""
    facts = attributes.get(_BELIEVED, {})
    return Explanation(
        trial=trial,
        candidate=candidate,
        why=attributes.get(WHY, ""),
        predictions=tuple(Prediction(label, *numbers) for label, numbers in facts.get("predictions", {}).items()),
        failure_chance=facts.get("failure_chance"),
        suspects=facts.get("suspects", {}),
        teaches=facts.get("teaches", {}),
        likely=facts.get("likely", {}),
        hints=facts.get("hints", {}),
        earlier=tuple(map(_earlier, facts.get("earlier", ()))),
    )


def _earlier(facts: Mapping[str, Any]) -> EarlierResult:
    failure = facts["failure"]
    return EarlierResult(
        study=facts["study"],
        trial=facts["trial"],
        gains=facts["gains"],
        doubt=facts["doubt"],
        failure=None if failure is None else FailureClass(failure),
    )

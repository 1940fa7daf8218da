"""Why a candidate was proposed, kept with its trial: what was believed then cannot be told from later data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from optuna.trial import Trial

from tuner.domain.candidate import Candidate
from tuner.search.base import Explanation, Prediction
from tuner.search.insight import teaches
from tuner.search.notebook import Notebook
from tuner.search.proposer import Choice

WHY = "why"
_BELIEVED = "believed"
_Z95 = 1.96


def explanation_facts(notebook: Notebook, choice: Choice) -> Mapping[str, Any] | None:
    """The facts that `Explanation` shows, as a trial's attribute; None when there was no model yet."""
    beliefs = choice.beliefs
    if beliefs is None:
        return None
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


def note_explanation(trial: Trial, facts: Mapping[str, Any] | None) -> None:
    """Keep the facts with a trial."""
    if facts is not None:
        trial.set_user_attr(_BELIEVED, dict(facts))


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
    )

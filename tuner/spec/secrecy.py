"""No text of a space file may hold a secret: every one of them is stored with the study.

The store hides what looks like a secret. What was hidden is not what was launched, so such a study could never go on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tuner.domain.catalogue import FlagCatalogue
from tuner.domain.knob import Knob
from tuner.domain.landing import landing_of
from tuner.domain.values import Value
from tuner.secrets import is_secret_name, redact, redact_arguments
from tuner.spec.findings import Findings, Place
from tuner.yamlfile import dotted

_HINT = "take it out; set it in the environment of tuner instead"


def secret_in_file(name: str) -> tuple[str, str]:
    """Message and hint for a secret that is written down where it would be stored with every study."""
    return f"a secret ({name}) would be stored with the study in clear", _HINT


def holds_secret(name: str, value: object) -> bool:
    """Whether a text is a secret by its name or by its looks (a password in a URL, a well-known form of key).

    The store hides such a text; a resumed study would then launch something else than it began with.
    """
    return isinstance(value, str) and value != "" and (is_secret_name(name) or redact(value) != value)


def knob_holds_secret(name: str, knob: Knob, value: Value, catalogue: FlagCatalogue) -> bool:
    """The same for a knob: the store knows a value by its knob, the launch by where it lands."""
    return holds_secret(name, value) or holds_secret(landing_of(knob, catalogue).name, value)


def check_secrets(data: Any, findings: Findings) -> None:
    """Note every text that would not be stored as it stands, unless it was noted before.

    Args:
        data: the file's content, overrides applied.
        findings: where to note it.
    """
    known = {problem.path for problem in findings.errors if problem.hint == _HINT}
    for place, text, shown in _texts((), data):
        if text != shown and known.isdisjoint(dotted(place[:end]) for end in range(1, len(place) + 1)):
            message, hint = secret_in_file(str(next(part for part in reversed(place) if isinstance(part, str))))
            findings.error(place, message, hint)


def _texts(place: Place, data: Any) -> Iterator[tuple[Place, str, str]]:
    """Every text below a place: where, what, and as it would be stored."""
    if isinstance(data, str):
        yield place, data, redact(data)
    elif isinstance(data, dict):
        for key, value in data.items():
            yield from _texts((*place, key), value)
    elif isinstance(data, list) and all(isinstance(word, str) for word in data):
        for index, (word, shown) in enumerate(zip(data, redact_arguments(data), strict=True)):
            yield (*place, index), word, shown
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from _texts((*place, index), value)

"""Did a setting take effect? What was asked, against what the running server says about itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tuner.domain.candidate import Candidate
from tuner.domain.catalogue import FlagCatalogue
from tuner.domain.knob import Knob
from tuner.domain.trial import Activity, KnobActivity
from tuner.domain.values import Value, spell

_TRUE, _FALSE = frozenset({"true", "1", "on"}), frozenset({"false", "0", "off", "none"})


# vLLM's choice, whether its user named it or not (platforms/cuda.py); a name that it cannot use ends the server.
_ATTENTION = re.compile(r"Using (?:AttentionBackendEnum\.)?([A-Z][A-Z0-9_]+) (?:attention )?backend\b")


def logged_settings(lines: Iterable[str]) -> dict[str, str]:
    """Settings that a server's log tells and its answers do not, under the names that `knob_activity` looks for."""
    found = next((match[1] for line in lines if (match := _ATTENTION.search(line))), None)
    return {} if found is None else {"attention_backend": found}


def _leaves(tree: object, name: str = "") -> Iterator[tuple[str, object]]:
    """Every (last key, value) of a nested answer."""
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from _leaves(value, str(key))
    elif not isinstance(tree, list) or name:
        yield name, tree


def _plain(value: object) -> str:
    text = str(value).strip().lower()
    return "true" if text in _TRUE else "false" if text in _FALSE else text


def _agrees(asked: Value, running: object) -> bool:
    if isinstance(running, list):
        return [str(item) for item in running] == str(asked).split()
    if isinstance(asked, int | float) and not isinstance(asked, bool) and isinstance(running, int | float):
        return float(asked) == float(running)
    return _plain(asked) == _plain(running)


def _is_code(asked: Value, running: object) -> bool:
    """Whether the server gives numbers for what was asked in a word, as it does for the members of an enumeration."""
    if not isinstance(asked, str) or any(part.lstrip("-").isdigit() for part in asked.split()):
        return False
    parts = running if isinstance(running, list) else [running]
    return bool(parts) and all(isinstance(part, int | float) and not isinstance(part, bool) for part in parts)


def _word(running: object, words: Mapping[str, int | tuple[int, ...]]) -> object:
    """The word that a code stands for, else what was reported."""
    code = tuple(running) if isinstance(running, list) else running
    return next((word for word, number in words.items() if number == code and not isinstance(code, bool)), running)


def _names(knob: Knob, catalogue: FlagCatalogue) -> set[str]:
    """Names under which the server may report the knob."""
    if knob.key is not None:
        return {knob.key.rsplit(".", 1)[-1]}
    if knob.env is not None:
        return {knob.env}
    spec = catalogue.find(knob.flag or "")
    spellings = (spec.name, *spec.aliases) if spec is not None else (knob.flag or "",)
    return {spelling.lstrip("-").replace("-", "_") for spelling in spellings}


def knob_activity(
    candidate: Candidate,
    knobs: Mapping[str, Knob],
    catalogue: FlagCatalogue,
    server_info: Mapping[str, Any] | None,
    own_all_reduce: str | None = None,
    logged: Mapping[str, str] | None = None,
    codes: Mapping[str, Mapping[str, int | tuple[int, ...]]] | None = None,
) -> tuple[KnobActivity, ...]:
    """The state of every knob that the candidate sets.

    Args:
        candidate: what was launched.
        knobs: of its engine.
        catalogue: flags of the engine's version.
        server_info: what the running server answers about itself; None where it does not.
        own_all_reduce: the engine's, where it comes before NCCL's.
        logged: what its log tells (`logged_settings`).
        codes: what the numbers mean that it answers for some words (`EngineDefinition.codes`).

    `inactive` when the catalogue knows that nothing reads the flag, or the server reports another value; `active` when
    it reports the value asked for; `unknown` when it reports nothing. A reported value shows that a setting was read,
    not that it changed the speed.
    """
    reported: dict[str, list[object]] = {}
    for name, value in (*_leaves(server_info or {}), *(logged or {}).items()):
        reported.setdefault(name, []).append(_word(value, (codes or {}).get(name, {})))
    found = []
    for name, value in candidate.values.items():
        if value is None:
            continue
        knob = knobs[name]
        asked = knob.given(value)
        if knob.flag is not None and (reason := catalogue.why_dead(knob.flag)) is not None:
            if asked is not False:  # a switch that is off puts nothing on the command line
                found.append(KnobActivity(name, Activity.INACTIVE, reason, rests_on=()))
            continue
        running = [item for spelling in _names(knob, catalogue) for item in reported.get(spelling, ())]
        readable = [item for item in running if not _is_code(asked, item)]
        if not running:
            found.append(KnobActivity(name, Activity.UNKNOWN, _silence(knob, own_all_reduce)))
        elif not readable:
            reason = f"the server reports it as the code {running[0]}, which does not say"
            found.append(KnobActivity(name, Activity.UNKNOWN, reason))
        elif any(_agrees(asked, item) for item in readable):
            found.append(KnobActivity(name, Activity.ACTIVE))
        else:
            shown = spell(running[0]) if isinstance(running[0], bool | int | float | str) else str(running[0])
            found.append(KnobActivity(name, Activity.INACTIVE, f"asked {spell(asked)}, the server runs with {shown}"))
    return tuple(found)


def _silence(knob: Knob, own_all_reduce: str | None) -> str:
    """Why nothing is known of a knob."""
    if knob.env is not None and knob.env.startswith("NCCL_") and own_all_reduce is not None:
        return f"the engine's own all-reduce ({own_all_reduce}) comes first; NCCL gets only what is too large for it"
    return "the server does not report it"

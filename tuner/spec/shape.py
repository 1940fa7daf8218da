"""Is the file a space at all? Words become values, pydantic checks the shape, and every error gets its place.

A space with errors is checked further without the parts that are wrong, so that a misspelt key, an empty range and an
unknown flag are reported together and not one per run.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from tuner.domain.conditions import ConditionSyntaxError, parse_condition
from tuner.domain.faults import fault_of
from tuner.domain.space import MISPLACED, Space
from tuner.domain.values import UNSET_WORD
from tuner.spec.findings import Findings
from tuner.yamlfile import Document, dotted

_WORDS: Mapping[str, bool | None] = {"on": True, "off": False, UNSET_WORD: None}
_ROUNDS = 8
_MISSING = object()
NO_RULE = "engine == unset"
"""Stands for a rule that could not be read; it never holds."""
_Path = tuple[str | int, ...]


def read_space(document: Document, data: Any, findings: Findings) -> tuple[Space | None, frozenset[str]]:
    """Validate the data of a space file.

    Args:
        document: for positions.
        data: the document's data, overrides applied.
        findings: receives every error.

    Returns:
        The space without its wrong parts (None when too little is left) and the names of knobs that were left out.
    """
    if not isinstance(data, dict):
        findings.error((), "a space file is a mapping with name, model, engines, knobs …")
        return None, frozenset()
    data = _with_values(document, copy.deepcopy(data))
    dropped: set[str] = set()
    for _ in range(_ROUNDS):
        try:
            return Space.model_validate(data), frozenset(dropped)
        except ValidationError as error:
            unfit = {path for item in error.errors() for path in _report(data, dict(item), findings)}
            dropped |= {name for path in unfit for name in _knob_name(path)}
            outcomes = [_drop(data, path) for path in sorted(unfit, key=len, reverse=True)]
            if not all(outcomes):
                break
    return None, frozenset(dropped)


# ---------------------------------------------------------------- words


def _value_places(data: dict[str, Any]) -> Iterator[tuple[Any, str | int, _Path]]:
    """Every (container, key, path) that holds a knob or flag value, where words such as `on` mean values."""

    def members(container: Any, path: _Path) -> Iterator[tuple[Any, str | int, _Path]]:
        if isinstance(container, dict):
            yield from ((container, key, (*path, key)) for key in container)
        elif isinstance(container, list):
            yield from ((container, index, (*path, index)) for index in range(len(container)))

    def of_knobs(knobs: Any, path: _Path) -> Iterator[tuple[Any, str | int, _Path]]:
        for name, knob in knobs.items() if isinstance(knobs, dict) else ():
            if not isinstance(knob, dict):
                continue
            yield from members(knob.get("values"), (*path, name, "values"))
            if "default" in knob:
                yield knob, "default", (*path, name, "default")
            if isinstance(prior := knob.get("prior"), dict):
                yield from members(prior.get("likely"), (*path, name, "prior", "likely"))

    yield from of_knobs(data.get("knobs"), ("knobs",))
    engines = data.get("engines")
    for name, engine in engines.items() if isinstance(engines, dict) else ():
        if not isinstance(engine, dict):
            continue
        here = ("engines", name)
        yield from of_knobs(engine.get("knobs"), (*here, "knobs"))
        yield from members(engine.get("flags"), (*here, "flags"))
        if isinstance(baseline := engine.get("baseline"), dict):
            yield from members(baseline.get("set"), (*here, "baseline", "set"))


def _with_values(document: Document, data: dict[str, Any]) -> dict[str, Any]:
    for container, key, path in list(_value_places(data)):
        word = container[key]
        if isinstance(word, str) and word in _WORDS and document.is_plain(path):
            container[key] = _WORDS[word]
    return data


# ---------------------------------------------------------------- errors


def _report(data: Any, item: dict[str, Any], findings: Findings) -> list[_Path]:
    """Note one pydantic error; returns the paths to leave out so that the rest can be checked."""
    kind = item["type"]
    if kind == MISPLACED:
        faults = item["ctx"]["faults"]
        for path, message in faults:
            if not (path[-1] in ("level", "rate") and findings.left_out("workload", f"{path[-1]}s")):
                findings.error(path, message)
        return list(dict.fromkeys(path[:2] for path, _ in faults))
    if kind == "missing" and any(problem.path == dotted(item["loc"]) for problem in findings.errors):
        # What stood there was wrong, and was left out.
        return [_unit(item["loc"][:-1]) or (item["loc"][-1],)]
    fault = fault_of(item, data, Space)
    findings.error(fault.path, fault.message, fault.hint, key=fault.key, offset=_offset_in(item))
    if kind == "missing":
        return [_unit(fault.path) or (item["loc"][-1],)]
    of_key = kind == "extra_forbidden" or item["loc"][-1:] == ("[key]",)
    # A part of the workload whose one key is misspelt would be called empty next.
    return [fault.path if of_key and fault.path[:1] != ("workload",) else _unit(fault.path)]


def _offset_in(item: dict[str, Any]) -> int:
    """Where inside a condition the fault is."""
    if item["type"] != "value_error" or item["loc"][-1:] not in (("when",), ("forbid",)):
        return 0
    try:
        parse_condition(str(item["input"]))
    except ConditionSyntaxError as error:
        return error.offset
    return 0


# ---------------------------------------------------------------- what to leave out


def _unit(path: _Path) -> _Path:
    """The smallest part that can be left out: a knob, rule, objective, fixed flag, key of the workload, or section."""
    if path[:1] == ("engines",):
        inner = path[2:]
        if inner[:1] and inner[0] in ("knobs", "rules", "flags", "env"):
            return path[:4]
        return path[:3] if inner else path
    if path[:1] and path[0] in ("knobs", "rules", "objectives", "limits", "workload"):
        return path[:2]
    return path[:1]


def _knob_name(path: _Path) -> Iterator[str]:
    for prefix in (0, 2):
        if len(path) == prefix + 2 and path[prefix] == "knobs":
            yield str(path[prefix + 1])


_PLACEHOLDERS: Mapping[str, Any] = {"name": "unnamed", "model": "unknown"}


_STAND_INS: Mapping[str, Callable[[int, int], dict[str, Any]]] = {
    "rules": lambda index, level: {"forbid": NO_RULE},
    "objectives": lambda index, level: {"level": level, "name": f"unread {index}"},
    "limits": lambda index, level: {"metric": "output_tok_s", "level": level, "min": 0},
}
"""Harmless items that take the place of unreadable ones."""


def _first_level(data: Mapping[str, Any]) -> int:
    workload = data.get("workload")
    levels = workload.get("levels") if isinstance(workload, dict) else None
    return levels[0] if isinstance(levels, list) and levels and isinstance(levels[0], int) else 1


def _drop(data: Any, path: _Path) -> bool:
    """Leave a part out of the data; False when that is not possible."""
    if len(path) == 1 and path[0] in _PLACEHOLDERS:
        data[path[0]] = _PLACEHOLDERS[str(path[0])]
        return True
    if not path:
        return False
    level = _first_level(data)
    for part in path[:-1]:
        data = data[part]
    last: Any = path[-1]
    if isinstance(data, list):
        # Replaced, not removed: the positions of the items after it must stay what they are in the file.
        data[last] = _STAND_INS[str(path[-2])](int(last), level)
        return True
    return data.pop(last, _MISSING) is not _MISSING

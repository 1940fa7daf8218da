"""What pydantic finds wrong with the data of a file, in the words of somebody who writes such files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from tuner.domain.catalogue import closest
from tuner.errors import Problem
from tuner.yamlfile import Document

Path_ = tuple[str | int, ...]

_PATTERNS = {
    r"^[a-z][a-z0-9_]*$": "must be lower-case letters, digits and _, starting with a letter",
    r"^-{1,2}[A-Za-z][A-Za-z0-9_.-]*$": "must look like a flag: --name or -name",
    r"^[A-Za-z_][A-Za-z0-9_]*$": "must look like an environment variable: letters, digits and _",
    r"^[A-Za-z0-9][A-Za-z0-9_.-]*$": "must be letters, digits, _, . and -, starting with a letter or digit",
    r"^[a-z0-9]+(-[a-z0-9]+)*$": "must be lower-case words or numbers with - between them",
    r"^\d+\.\d+$": 'must look like "12.0", in quotes',
}

_WHOLE, _NUMBER = "must be a whole number", "must be a number"
_KINDS = {
    "int_type": _WHOLE,
    "int_parsing": _WHOLE,
    "int_from_float": _WHOLE,
    "int_parsing_size": "must be a smaller whole number",
    "float_type": _NUMBER,
    "float_parsing": _NUMBER,
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "string_type": "must be a text",
    "model_type": "must be a mapping (key: value)",
    "mapping_type": "must be a mapping (key: value)",
    "dict_type": "must be a mapping (key: value)",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
}
"""Type of a pydantic error → what the value must be."""
_SHOWS_INPUT = ("int", "float", "bool")
"""Of these, what was written instead is told."""
_PYDANTICS_OWN = r"^(Input should be|(Tuple|List|Dictionary|String) should have)"
"""How the texts of other errors begin, where they speak of pydantic's types."""

_ONE_VALUE = {(member,) for member in ("bool", "int", "float", "str")}
"""How pydantic names the members of the union that a setting's value is; each of them complains."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong.

    Attributes:
        path: where, as far as the data goes.
        message: what.
        hint: what to do about it.
        key: to be shown at the key: it is wrong itself, or nothing stands there.
    """

    path: Path_
    message: str
    hint: str | None = None
    key: bool = False


def fault_of(item: Mapping[str, Any], data: Any, model: type[BaseModel]) -> Fault:
    """One item of `ValidationError.errors()`.

    Args:
        item: the item.
        data: what was validated.
        model: by what.
    """
    kind, loc = item["type"], item["loc"]
    path = _existing(data, loc)
    if kind == "extra_forbidden":
        known = _fields_at(path[:-1], model)
        guess = closest(str(path[-1]), tuple(known))
        advice = f"did you mean {guess}?" if guess else f"known here: {', '.join(known)}"
        return Fault(path, "unknown key", advice, key=True)
    if kind == "missing":
        return Fault(path, f"{loc[-1]} is missing", key=True)
    if loc[len(path) : len(path) + 1] in _ONE_VALUE and not isinstance(item["input"], str):
        return Fault(path, "must be one value: a number, a text, on or off")
    words = _words_for(item)
    if item["input"] is None and words.startswith("must be"):
        return Fault(path, f"is empty: it {words}", key=True)
    keys = _fields_at(path, model) if kind == "model_type" else []
    hint = f"with {', '.join(keys)}" if keys else _hint_for(item)
    return Fault(path, words, hint, key=loc[-1:] == ("[key]",))


def problems_of(document: Document, data: Any, error: ValidationError, model: type[BaseModel]) -> list[Problem]:
    """Every fault that pydantic found in a document, at its place."""
    faults = dict.fromkeys(fault_of(dict(item), data, model) for item in error.errors())
    return [document.problem(fault.path, fault.message, hint=fault.hint, key=fault.key) for fault in faults]


def _existing(data: Any, loc: Path_) -> Path_:
    """The part of a pydantic location that is a path of the data (it may end in `[key]` or a union's member)."""
    path: list[str | int] = []
    for part in loc:
        inside = part in data if isinstance(data, dict) else isinstance(data, list) and part in range(len(data))
        if not inside:
            break
        data = data[part]
        path.append(part)
    return tuple(path)


def _words_for(item: Mapping[str, Any]) -> str:
    kind, context = str(item["type"]), item.get("ctx", {})
    if kind == "string_pattern_mismatch":
        return _PATTERNS.get(str(context.get("pattern")), str(item["msg"]))
    if kind == "enum":
        return f"{item['input']!r} is not known; it may be {context.get('expected')}"
    if kind in _KINDS:
        given = item["input"]
        told = kind.startswith(_SHOWS_INPUT) and isinstance(given, str | int | float)
        shown = str(given).lower() if isinstance(given, bool) else given
        return f"{_KINDS[kind]}, not {shown}" if told else _KINDS[kind]
    text = str(item["msg"]).removeprefix("Value error, ").replace(" after validation", "")
    return re.sub(_PYDANTICS_OWN, lambda found: f"must {found[0].split()[-1]}", text)


def _hint_for(item: Mapping[str, Any]) -> str | None:
    if item["type"] != "enum":
        return None
    expected = re.findall(r"'([^']*)'", str(item.get("ctx", {}).get("expected", "")))
    guess = closest(str(item["input"]), tuple(expected))
    return f"did you mean {guess}?" if guess else None


def _fields_at(path: Path_, root: type[BaseModel]) -> list[str]:
    """Keys that the model at a path knows, as they are written in a file."""
    model: Any = root
    for part in path:
        if isinstance(model, type) and issubclass(model, BaseModel):
            names = {field.alias or name: field.annotation for name, field in model.model_fields.items()}
            model = names.get(str(part))
        else:
            model = (get_args(model) or (None,))[0 if get_origin(model) is tuple else -1]
        model = _plain_type(model)
    if isinstance(model, type) and issubclass(model, BaseModel):
        return [field.alias or name for name, field in model.model_fields.items()]
    return []


def _plain_type(annotation: Any) -> Any:
    """`X` of `X | None`."""
    if get_origin(annotation) in (Union, UnionType):
        return next((arg for arg in get_args(annotation) if arg is not type(None)), None)
    return annotation

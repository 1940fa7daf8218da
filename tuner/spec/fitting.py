"""What a command wrote → the knob's value that means the same."""

from __future__ import annotations

from tuner.domain.conditions import literal
from tuner.domain.knob import Knob
from tuner.domain.values import FlagValue, Value, same, spell

_TRUE, _FALSE = frozenset({"1", "true", "on", "yes"}), frozenset({"0", "false", "off", "no", ""})


def means_off(text: str) -> bool:
    """Whether a text given to a switch turns it off."""
    return text.lower() in _FALSE


class Unfit:
    """No value of the knob means this text."""


def fit(knob: Knob, value: FlagValue) -> Value | Unfit:
    """The knob's value that means what a command wrote, or `Unfit`."""
    if isinstance(value, tuple):
        value = " ".join(map(str, value))
    if isinstance(value, str) and not value and knob.allows(None):
        # NCCL and the engines read an empty variable as unset.
        return None
    if knob.switch:
        word = spell(value).lower()
        if word not in _TRUE | _FALSE:
            return Unfit()
        return (word in _TRUE) != knob.inverted
    candidates: list[Value] = [value]
    if isinstance(value, str):
        candidates.append(literal(value))
    for candidate in candidates:
        if knob.allows(candidate):
            return knob.own(candidate)
    # 0.80 means 0.8, `ring` means Ring where the file spells it so.
    return next((choice for choice in knob.values or () if _alike(choice, value)), Unfit())


def _alike(choice: Value, value: Value) -> bool:
    if choice is None or value is None:
        return False
    if isinstance(choice, float) and isinstance(parsed := literal(str(value)), int | float):
        return same(choice, float(parsed))
    return str(choice).lower() == str(value).lower()


def pop_key(tree: dict[str, object], keys: list[str]) -> tuple[bool, object]:
    """Take a nested value out of a JSON object, and empty parents with it."""
    first, *rest = keys
    if first not in tree:
        return False, None
    if not rest:
        return True, tree.pop(first)
    inner = tree[first]
    if not isinstance(inner, dict):
        return False, None
    found, value = pop_key(inner, rest)
    if found and not inner:
        del tree[first]
    return found, value

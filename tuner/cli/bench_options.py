"""Where `tuner bench` speaks of the workload, it names its own options instead of the keys of a space file."""

from __future__ import annotations

import re
from typing import Any

from pydantic import ValidationError

from tuner.domain.faults import fault_of
from tuner.domain.warnings import WarningCode
from tuner.domain.workload import Workload
from tuner.errors import UsageError

_OPTIONS = {
    "warmup_requests": "--warmup",
    "request_timeout_s": "--timeout",
    "prefix_tokens": "--shared-prefix",
    "groups": "--prefix-groups",
    "turns": "--turns",
    "path": "--dataset",
}
"""Keys whose option is not called as they are."""

_ADVICE = {WarningCode.PRECISION_NOT_REACHED: "accept a wider --precision"}
"""Where the usual advice is a key that has no option."""


def workload_of(**fields: Any) -> Workload:
    """The workload that options ask for.

    Raises:
        UsageError: with every option that is wrong, and what it may be.
    """
    try:
        return Workload(**fields)
    except ValidationError as error:
        said = dict.fromkeys(_complaint(dict(item), fields) for item in error.errors())
        raise UsageError("; ".join(said)) from None


def warning_words(code: WarningCode) -> str:
    """Meaning and advice of a warning in one line."""
    advice = _ADVICE.get(code) or re.sub(r"\bworkload\.(\w+)", lambda key: option(key[1]), code.advice)
    return f"{code.meaning}: {advice}"


def option(key: str) -> str:
    """The option for a key of the workload."""
    return _OPTIONS.get(key) or f"--{key.replace('_', '-')}"


def _complaint(item: dict[str, Any], fields: dict[str, Any]) -> str:
    """One fault: `--goodput speed: unknown key (known here: …)`."""
    fault = fault_of(item, fields, Workload)
    hint = f" ({fault.hint})" if fault.hint else ""
    keys = [part for part in item["loc"] if isinstance(part, str)]
    if not keys:
        return re.sub(r"\b(?:shape\.)?([a-z]+(?:_[a-z]+)+|levels|rates)\b", _named, fault.message) + hint
    if keys[0] == "shape":
        return f"{option(keys[-1])}: {fault.message}{hint}"
    return f"{' '.join((option(keys[0]), *keys[1:]))}: {fault.message}{hint}"


def _named(found: re.Match[str]) -> str:
    """A key inside a sentence; words that are none stay."""
    known = {*Workload.model_fields, *_OPTIONS}
    return option(found[1]) if found[1] in known else found[0]

"""The manifest: everything that an export knows, as one JSON document for other programs."""

from __future__ import annotations

import json
from typing import Any

from tuner.domain.values import spell
from tuner.export.base import Export, Number
from tuner.export.words import Variable, Word, command_of


def manifest(export: Export) -> str:
    """The JSON text. Keys: see `manifest_document`."""
    return json.dumps(manifest_document(export), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def manifest_document(export: Export) -> dict[str, Any]:
    """What is exported.

    Keys: `study`, `trial`, `fingerprint`, `simulated`, `measured_at` (ISO 8601), `tuner_version`, `engine` (`name`,
    `version`), `model`, `settings` (knob → value), `changes` (knob → [baseline's, own]), `results` (list of `metric`,
    `unit`, `level` and `rate` (one is null), `center`, `low`, `high`, `spread`, `launches`, `gain`, `confirmed`),
    `broken_limits`, `versions`, `machine`, `command` (`argv`, `env`: texts in which `${NAME}` stands for a variable and
    `$$` for a dollar sign; `inherited`: names; `variables`: name → default, null where the caller must set it; `cwd`).
    """
    command = command_of(export)
    return {
        "study": export.study,
        "trial": export.trial,
        "fingerprint": export.fingerprint,
        "simulated": export.simulated,
        "measured_at": export.measured_on,
        "tuner_version": export.tuner_version,
        "engine": {"name": export.plan.engine, "version": export.plan.engine_version},
        "model": export.plan.model,
        "settings": dict(export.settings),
        "changes": {name: [spell(before), spell(now)] for name, (before, now) in export.changes.items()},
        "results": [_result(number) for number in export.numbers],
        "broken_limits": list(export.broken),
        "versions": dict(export.versions),
        "machine": dict(export.machine),
        "command": {
            "argv": [_text(word) for word in command.argv],
            "env": {name: _text(word) for name, word in command.env.items()},
            "inherited": list(command.inherited),
            "variables": {variable.name: variable.default for variable in command.variables},
            "cwd": export.plan.cwd,
        },
    }


def _result(number: Number) -> dict[str, Any]:
    value, gain = number.estimate, number.gain
    return {
        "metric": number.goal.metric.value,
        "unit": number.goal.metric.unit,
        **number.goal.load.document,
        "center": value.center,
        "low": value.low,
        "high": value.high,
        "spread": value.spread_kind.value,
        "launches": value.launches,
        "gain": None if gain is None else {"ratio": gain.ratio, "low": gain.low, "high": gain.high},
        "confirmed": number.confirmed,
    }


def _text(word: Word) -> str:
    return "".join(f"${{{part.name}}}" if isinstance(part, Variable) else part.replace("$", "$$") for part in word)

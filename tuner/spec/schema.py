"""JSON Schema of space files, for editors."""

from __future__ import annotations

from typing import Any

from tuner.domain.space import Space

SCHEMA_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_WORDS = {"enum": ["on", "off", "unset"]}


def space_schema() -> dict[str, Any]:
    """The schema of a whole space file, generated from the models that read it.

    YAML 1.2 keeps `on`, `off` and `unset` as words; where the program expects a truth value, the schema takes them too.
    """
    schema = Space.model_json_schema(by_alias=True, mode="validation")
    return {"$schema": SCHEMA_DIALECT, "title": "tuner search space", **_with_words(schema)}


def _with_words(node: Any) -> Any:
    if isinstance(node, list):
        return [_with_words(item) for item in node]
    if not isinstance(node, dict):
        return node
    node = {key: _with_words(value) for key, value in node.items()}
    if node.get("type") == "boolean":
        kept = {key: value for key, value in node.items() if key != "type"}
        return {**kept, "anyOf": [{"type": "boolean"}, _WORDS]}
    return node

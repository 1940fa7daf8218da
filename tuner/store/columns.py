"""The store's border: column types that let no secret, and nothing that a database cannot hold, through.

Every text and JSON column of tuner's tables has one of these types, so cleaning cannot be forgotten by a caller.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from sqlalchemy import JSON, Dialect, Text
from sqlalchemy.types import TypeDecorator

from tuner.secrets import HIDDEN, is_flag, is_secret_name, redact

JsonValue = bool | int | float | str | None | list["JsonValue"] | dict[str, "JsonValue"]


def clean_text(text: str) -> str:
    """Hide secrets; replace NUL (PostgreSQL refuses it) and lone surrogates (of undecodable log bytes) by U+FFFD."""
    return redact(text).replace("\x00", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def clean_document(document: object) -> JsonValue:
    """A copy of a JSON value with every text cleaned, and with the values of secret names hidden.

    In a list of arguments, the argument after a secret flag (`--api-key`, `KEY`) is its value.
    """
    if isinstance(document, str):
        return clean_text(document)
    if isinstance(document, Mapping):
        return {clean_text(str(name)): _value_of(str(name), value) for name, value in document.items()}
    if isinstance(document, Sequence):
        before = [None, *document]
        return [
            _value_of(flag, item) if _has_value(flag, item) else clean_document(item)
            for flag, item in zip(before, document, strict=False)
        ]
    if document is None or isinstance(document, bool | int | float):
        return document
    raise TypeError(f"not a JSON value: {type(document).__name__}")


def _has_value(flag: object, item: object) -> TypeGuard[str]:
    """Whether the first is a flag without a value of its own, and the second no flag."""
    if not isinstance(flag, str) or not flag.startswith("-") or "=" in flag:
        return False
    return not isinstance(item, str) or not is_flag(item)


def _value_of(name: str, value: object) -> JsonValue:
    if isinstance(value, str) and value and is_secret_name(name):
        return HIDDEN
    return clean_document(value)


class CleanText(TypeDecorator[str]):
    """A text of any length, cleaned on its way in."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Called by SQLAlchemy for every value that goes to the database, in comparisons too."""
        return None if value is None else clean_text(value)


class CleanDocument(TypeDecorator[Any]):
    """A JSON value, cleaned on its way in."""

    impl = JSON(none_as_null=True)
    cache_ok = True

    def process_bind_param(self, value: object, dialect: Dialect) -> JsonValue:
        """Called by SQLAlchemy for every value that goes to the database."""
        return clean_document(value)

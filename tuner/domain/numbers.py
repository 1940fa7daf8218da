"""Numbers in the files that people write: to Python `true` is 1, and nobody who writes `true` means that."""

from __future__ import annotations

from pydantic import BeforeValidator
from pydantic_core import PydanticKnownError


def _whole(value: object) -> object:
    if isinstance(value, bool):
        raise PydanticKnownError("int_type")
    return value


def _number(value: object) -> object:
    if isinstance(value, bool):
        raise PydanticKnownError("float_type")
    return value


WHOLE, NUMBER = BeforeValidator(_whole), BeforeValidator(_number)
"""Marks of a field that takes a whole number, or any number: truth values are refused, in the words of other texts."""

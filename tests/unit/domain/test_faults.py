"""What is wrong with a file is said in words, not in regular expressions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field, ValidationError, create_model

from tuner.domain.faults import fault_of
from tuner.domain.space import Space
from tuner.engines.definition import EngineDefinition
from tuner.engines.signatures import SignatureFile


def patterns(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(pattern := schema.get("pattern"), str):
            yield pattern
        yield from schema.get("patternProperties", ())
    for part in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from patterns(part)


@pytest.mark.parametrize("model", [Space, EngineDefinition, SignatureFile])
def test_whatever_form_a_files_text_must_have_is_said_in_words(model: type[BaseModel]) -> None:
    forms = set(patterns(model.model_json_schema()))
    assert forms
    for form in forms:
        one = create_model("one", text=(Annotated[str, Field(pattern=form)], ...))
        with pytest.raises(ValidationError) as caught:
            one(text="\N{SNOWMAN}")
        (item,) = caught.value.errors()
        assert fault_of(dict(item), {"text": "\N{SNOWMAN}"}, one).message.startswith("must "), form

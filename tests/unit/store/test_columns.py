"""The store's border: no column lets a text through uncleaned."""

from __future__ import annotations

import pytest
from sqlalchemy import JSON, Column, String

from tuner.store.columns import CleanDocument, CleanText, clean_document, clean_text
from tuner.store.tables import Base

COLUMNS = [column for table in Base.metadata.tables.values() for column in table.columns]


@pytest.mark.parametrize("column", COLUMNS, ids=str)
def test_every_column_that_can_hold_a_text_cleans_it(column: Column) -> None:
    assert isinstance(column.type, CleanText | CleanDocument) or not isinstance(column.type, String | JSON)


@pytest.mark.parametrize(
    ("document", "stored"),
    [
        (["--api-key", "abc"], ["--api-key", "***"]),
        (["--api-key", "--port", "8"], ["--api-key", "--port", "8"]),
        (["--api-key", "-abcDEF123", "-tp", "8"], ["--api-key", "***", "-tp", "8"]),
        (["--api-key=abc", "x"], ["--api-key=***", "x"]),
        ({"HF_TOKEN": "abc", "N": 1}, {"HF_TOKEN": "***", "N": 1}),
        ({"env": {"API_KEY": "abc"}}, {"env": {"API_KEY": "***"}}),
        ({"HF_TOKEN": ""}, {"HF_TOKEN": ""}),
        ({"HF_TOKEN": None, "flag": True}, {"HF_TOKEN": None, "flag": True}),
        (["max_tokens", "5"], ["max_tokens", "5"]),
        ((1, 2.5, None, False), [1, 2.5, None, False]),
    ],
)
def test_documents_lose_their_secrets_and_nothing_else(document: object, stored: object) -> None:
    assert clean_document(document) == stored


def test_cleaning_twice_changes_nothing_more() -> None:
    text = "HF_TOKEN=abc postgresql://joe:abc@host/x \x00 \udcff"
    assert clean_text(clean_text(text)) == clean_text(text)


def test_what_is_no_json_is_a_defect() -> None:
    with pytest.raises(TypeError, match="not a JSON value: object"):
        clean_document({"x": object()})

"""The user's own questions, and the prompts that are asked of every launch."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.errors import UserError
from tuner.trial.output_check import read_questions


def test_questions_are_pairs_of_a_json_lines_file(tmp_path: Path) -> None:
    file = tmp_path / "q.jsonl"
    file.write_text('{"question": "2+2?", "answer": 4}\n\n{"question": "Capital of Peru?", "answer": "Lima"}\n')
    assert read_questions(file) == [("2+2?", "4"), ("Capital of Peru?", "Lima")]


@pytest.mark.parametrize("text", ["", "no JSON\n", '{"question": "2+2?"}\n', "[1]\n"])
def test_a_file_that_holds_no_questions_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "q.jsonl"
    file.write_text(text)
    with pytest.raises(UserError, match="question"):
        read_questions(file)

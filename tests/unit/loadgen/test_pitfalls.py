"""Every known pitfall of benchmark clients has a test or a written decision."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
CASES = [
    json.loads(line)["id"]
    for line in (ROOT / "tests" / "data" / "cases" / "benchpitfalls.jsonl").read_text(encoding="utf-8").splitlines()
]
PAGE = (ROOT / "docs" / "measuring.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| (P\d+) \| (.+) \|$", PAGE, re.M))


def test_the_table_has_exactly_the_known_cases() -> None:
    assert list(ROWS) == CASES


@pytest.mark.parametrize("case", CASES)
def test_a_case_names_tests_that_exist_or_says_what_was_decided(case: str) -> None:
    named = re.findall(r"(tests/[\w/]+\.py)::(\w+)", ROWS[case])
    assert named or ROWS[case].startswith("decision: ")
    for path, name in named:
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}

"""A space file holds no secrets: they would be stored, and hidden there the study could not go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.space_files import Errors

from tuner.domain.space import Space
from tuner.engines.catalogue import catalogues
from tuner.spec import load_space, space_hash
from tuner.store.columns import clean_document

KEY = "hf_0123456789abcdefghij"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (f"description: with {KEY}\n", "3:14 description: a secret (description)"),
        (f"hardware: {{gpu_name: {KEY}}}\n", "hardware.gpu_name: a secret (gpu_name)"),
        ("served_model: https://joe:hidden@host/m\n", "served_model: a secret (served_model)"),
        ("workload: {levels: [1], tokenizer: https://joe:hidden@host/m}\n", "workload.tokenizer: a secret (tokenizer)"),
        (f"objectives: [{{level: 1, name: {KEY}}}]\n", "objectives[0].name: a secret (name)"),
        ("engines: {engine: {command: [serve, --api-key, hidden]}}\n", "engines.engine.command[2]: a secret (command)"),
        (
            "knobs:\n  a: {values: [1, 2], env: A, prior: {likely: [1], reason: password=hidden}}\n",
            "knobs.a.prior.reason: a secret (reason)",
        ),
        (
            "engines: {engine: {baseline: {command: HF_TOKEN=$(cat hidden) python -m engine.serve --model m}}}\n",
            "engines.engine.baseline.command:",
        ),
    ],
)
def test_a_secret_is_refused_wherever_it_stands(errors: Errors, text: str, place: str) -> None:
    found = errors(text)
    assert any(place in one for one in found), found
    assert not any("hidden" in one or KEY in one for one in found if "a secret" in one)


def test_a_secret_is_told_once(errors: Errors) -> None:
    assert len(errors("engines: {engine: {flags: {--api-key: abc}}}\n")) == 1


@pytest.mark.parametrize(
    "command",
    [
        "HF_TOKEN=$HF_TOKEN vllm serve m",
        "docker run -e HF_TOKEN=${HF_TOKEN} -e API_KEY vllm/vllm-openai --model m",
    ],
)
def test_a_command_that_only_names_a_secret_is_stored_as_it_stands(tmp_path: Path, command: str) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(f"name: t\nmodel: m\nengines: {{vllm: {{baseline: {{command: '{command}'}}}}}}\n")
    space = load_space(file, catalogues=catalogues()).space
    stored: Any = clean_document(space.model_dump(mode="json", by_alias=True))
    assert space_hash(Space.model_validate(stored)) == space_hash(space)

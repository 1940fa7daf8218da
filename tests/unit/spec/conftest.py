"""A small engine with a flag of every kind, and space files written in a few lines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tuner.domain.catalogue import CatalogueLookup, FlagCatalogue, GpuNeed
from tuner.errors import SpecError
from tuner.spec import LoadedSpace, load_space

FLAGS: list[dict[str, Any]] = [
    {"name": "--model", "kind": "value", "type": "str"},
    {"name": "--host", "kind": "value", "type": "str", "default": "127.0.0.1"},
    {"name": "--port", "kind": "value", "type": "int", "default": 8000},
    {"name": "--served-model-name", "kind": "list", "type": "str"},
    {"name": "--api-key", "kind": "value", "type": "str"},
    {"name": "--backend", "kind": "value", "type": "str", "choices": ["triton", "fa3", "flash"], "default": None},
    {"name": "--tensor-parallel-size", "aliases": ["--tp"], "kind": "value", "type": "int", "default": 1},
    {"name": "--pipeline-parallel-size", "kind": "value", "type": "int", "default": 1},
    {"name": "--data-parallel-size", "kind": "value", "type": "int", "default": 1},
    {"name": "--enable-dp-attention", "kind": "switch", "default": False},
    {"name": "--config", "kind": "value", "type": "str", "default": "flash"},
    {"name": "--max-running", "kind": "value", "type": "int", "default": None},
    {"name": "--memory", "kind": "value", "type": "float", "default": 0.9},
    {"name": "--disable-own", "kind": "switch", "default": False},
    {"name": "--mixed", "kind": "switch", "default": False},
    {"name": "--caching", "kind": "toggle", "default": None},
    {"name": "--sizes", "kind": "list", "type": "int"},
    {"name": "--config-json", "aliases": ["-cj"], "kind": "json", "type": "json"},
    {"name": "--nnodes", "kind": "value", "type": "int", "default": 1},
    {"name": "--steps", "kind": "value", "type": "int", "default": 1},
]
_GPUS = ("--tensor-parallel-size", "--pipeline-parallel-size")
CATALOGUE = replace(
    FlagCatalogue.from_json(
        {
            "engine": "engine",
            "version": "1.0",
            "flags": FLAGS,
            "removed": {"--old": "use --max-running"},
            "dead": {"--steps": "nothing reads it"},
        }
    ),
    gpu_needs=(GpuNeed(_GPUS), GpuNeed((*_GPUS, "--data-parallel-size"), unless="--enable-dp-attention")),
)
CATALOGUES: dict[str, CatalogueLookup] = {"engine": lambda _: CATALOGUE, "other": lambda _: CATALOGUE}

HEAD = "name: t\nmodel: m\n"


@pytest.fixture
def catalogue() -> FlagCatalogue:
    return CATALOGUE


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., LoadedSpace]:
    """Load a space from its text; name, model and an engine are filled in where they are missing."""
    monkeypatch.chdir(tmp_path)

    def from_text(text: str, **overrides: Any) -> LoadedSpace:
        text = text if "name:" in text else HEAD + text
        text = text if "engines:" in text else f"{text}\nengines: {{engine: {{}}}}\n"
        (tmp_path / "s.yaml").write_text(text)
        return load_space("s.yaml", catalogues=CATALOGUES, overrides=overrides)

    return from_text


@pytest.fixture
def errors(load: Callable[..., LoadedSpace]) -> Callable[..., list[str]]:
    """Everything that is wrong with a space, one text per problem."""

    def of(text: str, **overrides: Any) -> list[str]:
        with pytest.raises(SpecError) as caught:
            load(text, **overrides)
        return [str(problem) for problem in caught.value.problems]

    return of

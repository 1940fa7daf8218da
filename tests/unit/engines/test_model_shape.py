"""How large a model's messages are, by its `config.json` alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tuner.engines.model_shape import ModelShape, model_shape


def folder(at: Path, **config: Any) -> str:
    at.mkdir(parents=True, exist_ok=True)
    (at / "config.json").write_text(json.dumps(config))
    return str(at)


def test_a_plain_model_says_width_dtype_and_layers(tmp_path: Path) -> None:
    found = model_shape(folder(tmp_path, hidden_size=4096, torch_dtype="bfloat16", num_hidden_layers=32))
    assert found == ModelShape(4096, "bfloat16", 32)
    assert found.token_bytes == 8192


def test_of_text_and_vision_the_text_part_counts(tmp_path: Path) -> None:
    text = {"hidden_size": 7168, "num_hidden_layers": 61, "dtype": "bfloat16"}
    found = model_shape(folder(tmp_path, text_config=text, vision_config={"hidden_size": 1152}))
    assert found == ModelShape(7168, "bfloat16", 61)


@pytest.mark.parametrize(("dtype", "size"), [("float16", 128), ("float32", 256), ("torch.bfloat16", 128), (None, 128)])
def test_numbers_take_the_room_of_their_type(tmp_path: Path, dtype: str | None, size: int) -> None:
    found = model_shape(folder(tmp_path, hidden_size=64, torch_dtype=dtype))
    assert found is not None
    assert found.token_bytes == size


def test_a_name_is_looked_up_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    folder(tmp_path / "models--owner--name" / "snapshots" / "abc", hidden_size=64)
    assert model_shape("owner/name") == ModelShape(64)
    assert model_shape("owner/other") is None


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"hidden_size": "wide"}', '{"text_config": []}'])
def test_what_is_no_configuration_gives_no_shape(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    assert model_shape(str(tmp_path)) is None

"""The weights maker: what a loader needs, that it can be made again, and that the model is decided."""

import json
import math
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest


@pytest.fixture
def folder(make_model: ModuleType, tmp_path: Path) -> Path:
    make_model.make_model(tmp_path, make_model.SIZES["tiny"])
    return tmp_path


def read(file: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and tensors (as float32) of a safetensors file, by its format's description."""
    raw = file.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    data = raw[8 + length :]
    assert header.pop("__metadata__") == {"format": "pt"}  # transformers loads no file without it
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        bits = np.frombuffer(data[begin:end], dtype="<u2").astype(np.uint32) << 16
        tensors[name] = bits.view(np.float32).reshape(entry["shape"])
    assert len(data) == max(entry["data_offsets"][1] for entry in header.values())
    return header, tensors


def test_every_tensor_of_the_configuration_is_there(make_weights: ModuleType, folder: Path) -> None:
    make_weights.make_weights(folder, 1)
    header, tensors = read(folder / make_weights.FILE)
    assert {entry["dtype"] for entry in header.values()} == {"BF16"}
    assert tensors["lm_head.weight"].shape == tensors["model.embed_tokens.weight"].shape == (1024, 128)
    assert tensors["model.layers.1.self_attn.k_proj.weight"].shape == (64, 128)
    assert tensors["model.layers.0.mlp.down_proj.weight"].shape == (128, 256)
    assert (tensors["model.norm.weight"] == 1).all()
    assert len(tensors) == 3 + 2 * 9


def test_numbers_have_the_size_that_keeps_the_signal(make_weights: ModuleType, folder: Path) -> None:
    make_weights.make_weights(folder, 1)
    _, tensors = read(folder / make_weights.FILE)
    assert tensors["model.layers.0.mlp.down_proj.weight"].std() == pytest.approx(1 / math.sqrt(256), rel=0.02)
    # What a normalised state (each of its 128 numbers about one) makes of the last layer.
    assert tensors["lm_head.weight"].std() * math.sqrt(128) == pytest.approx(make_weights.LOGIT_DEVIATION, rel=0.02)


def test_a_seed_gives_the_same_bytes_and_another_one_another_model(make_weights: ModuleType, folder: Path) -> None:
    written = []
    for seed in (1, 1, 2):
        make_weights.make_weights(folder, seed)
        written.append((folder / make_weights.FILE).read_bytes())
    assert written[0] == written[1] != written[2]
    assert len(written[1]) == len(written[2])


def test_another_kind_of_model_is_refused(make_weights: ModuleType, make_model: ModuleType, tmp_path: Path) -> None:
    make_model.make_model(tmp_path, make_model.SIZES["deepseek-tiny"])
    with pytest.raises(ValueError, match="deepseek_v3"):
        make_weights.make_weights(tmp_path, 1)

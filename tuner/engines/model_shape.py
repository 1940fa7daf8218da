"""What a model's `config.json` says about its size; the model itself is never loaded."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_CONFIG = "config.json"
_ELEMENT_BYTES = {"bfloat16": 2, "float16": 2, "half": 2, "float32": 4, "float": 4}
_USUAL_DTYPE = "bfloat16"


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The part of a model's configuration that decides how large its messages are.

    Attributes:
        hidden_size: width of a token's vector.
        dtype: of activations.
        layers: transformer layers, None where the file does not say.
    """

    hidden_size: int
    dtype: str = _USUAL_DTYPE
    layers: int | None = None

    @property
    def token_bytes(self) -> int:
        """Bytes that one token adds to an all-reduce."""
        return self.hidden_size * _ELEMENT_BYTES.get(self.dtype, 2)


def model_shape(model: str) -> ModelShape | None:
    """Shape of a model given as a folder, or as a name whose configuration the Hugging Face cache holds.

    Of a model of several parts (text and vision) it is that of the text part. None where there is no such file.
    """
    file = _config_file(model)
    if file is None:
        return None
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(config, dict):
        return None
    text = config.get("text_config")
    part: Mapping[str, Any] = text if isinstance(text, dict) and "hidden_size" not in config else config
    size, layers = part.get("hidden_size"), part.get("num_hidden_layers")
    if not isinstance(size, int):
        return None
    names = (part.get("dtype"), part.get("torch_dtype"), config.get("dtype"), config.get("torch_dtype"))
    dtype = next((name for name in names if isinstance(name, str)), _USUAL_DTYPE)
    return ModelShape(size, dtype.removeprefix("torch."), layers if isinstance(layers, int) else None)


def _config_file(model: str) -> Path | None:
    """The folder's own file, or the newest snapshot's in the cache (`models--OWNER--NAME/snapshots/*`)."""
    if (own := Path(model).expanduser() / _CONFIG).is_file():
        return own
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    cache = Path(os.environ.get("HF_HUB_CACHE") or home / "hub")
    snapshots = (cache / f"models--{model.replace('/', '--')}" / "snapshots").glob(f"*/{_CONFIG}")
    return max(snapshots, key=lambda path: path.stat().st_mtime, default=None)

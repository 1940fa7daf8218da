"""A model that is small enough to be served on a CPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_TOOL = Path(__file__).parents[2] / "tools" / "make_model.py"


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    subprocess.run([sys.executable, _TOOL, "--size", "tiny", "-o", folder], check=True, capture_output=True)
    return folder

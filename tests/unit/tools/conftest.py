"""Loads the programs under `tools/`, which are no package: some run with other interpreters than tuner's."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

TOOLS = Path(__file__).parents[3] / "tools"
# Where a program finds its neighbours when it is run.
sys.path.append(str(TOOLS))


def load(relative: str) -> ModuleType:
    """A tool as a module, by its path under `tools/`."""
    path = TOOLS / relative
    name = f"tool_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def make_model() -> ModuleType:
    return load("make_model.py")


@pytest.fixture(scope="session")
def make_weights() -> ModuleType:
    return load("make_weights.py")


@pytest.fixture(scope="session")
def dump_flags() -> ModuleType:
    return load("dump_flags.py")


@pytest.fixture(scope="session")
def engine_setup() -> ModuleType:
    return load("engines/setup.py")

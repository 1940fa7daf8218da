"""Shared by the tests of warm launches."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tuner.trial.warm import WarmParents


@pytest.fixture
def parents() -> Iterator[WarmParents]:
    """Processes with an engine's imports, which end with the test."""
    kept = WarmParents()
    yield kept
    kept.close()

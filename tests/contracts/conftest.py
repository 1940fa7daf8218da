"""A store, and a study in it whose truth is known; modules about other studies have a `world` of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.proof_world import World, toy_space

from tuner.store import Store, open_store


@pytest.fixture
def store(sqlite_url: str) -> Iterator[Store]:
    with open_store(sqlite_url) as opened:
        yield opened


@pytest.fixture
def world(store: Store, sqlite_url: str, tmp_path: Path) -> World:
    return World(store, sqlite_url, tmp_path / "runs", toy_space())

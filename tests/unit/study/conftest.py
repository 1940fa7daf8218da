"""A database of this version for each test: a copy, since making its tables takes longer than most of these tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tuner.store import Store, open_store


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    file = tmp_path_factory.mktemp("empty") / "tuner.db"
    open_store(f"sqlite:///{file}").close()
    return file.read_bytes()


@pytest.fixture
def sqlite_url(sqlite_url: str, empty_database: bytes) -> str:
    Path(sqlite_url.removeprefix("sqlite:///")).write_bytes(empty_database)
    return sqlite_url


@pytest.fixture
def store(sqlite_url: str) -> Iterator[Store]:
    with open_store(sqlite_url) as opened:
        yield opened

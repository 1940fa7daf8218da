"""A store on each kind of database, with a clock that the test sets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support import records
from support.stores import Clock

from tuner.store import Store, open_store


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(storage_url: str, clock: Clock) -> Iterator[Store]:
    with open_store(storage_url, patience_s=2, clock=clock) as opened:
        yield opened


@pytest.fixture
def night(store: Store) -> Store:
    """A store with the study `night`."""
    store.create_study(records.study())
    return store

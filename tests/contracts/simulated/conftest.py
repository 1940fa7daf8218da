"""One server for all tests that only ask it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.simulated import SPEEDY, Server, started


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with started(tmp_path_factory.mktemp("simulated"), *SPEEDY) as running:
        yield running

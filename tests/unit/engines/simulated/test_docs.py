"""The guide names every fault, every option and every dead flag."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.engines.simulated.faults import LAUNCH_FAULTS, PHASES, REPLY_FAULTS, FaultKind
from tuner.engines.simulated.flags import DEAD_FLAGS

GUIDE = (Path(__file__).parents[4] / "docs" / "simulated.md").read_text(encoding="utf-8")
SHARED = {"p", "skip"}


@pytest.mark.parametrize(("name", "kind"), [*LAUNCH_FAULTS.items(), *REPLY_FAULTS.items()])
def test_every_fault_has_its_row_with_its_options(name: str, kind: FaultKind) -> None:
    shown = f"| `{name}@PHASE` |" if kind.default_where else f"| `{name}` |"
    row = next((line for line in GUIDE.splitlines() if line.startswith(shown)), None)
    assert row is not None
    own = set(kind.options) - SHARED - ({"running"} if name in REPLY_FAULTS else set())
    assert {option for option in own if f"`{option}" not in row} == set()


def test_every_phase_and_every_dead_flag_is_named() -> None:
    assert all(f"`{name}`" in GUIDE for name in (*PHASES, *DEAD_FLAGS))

"""What a workload refuses."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from tuner.domain.workload import Workload


def test_conversations_cannot_arrive_at_a_rate() -> None:
    turns = {"kind": "multi_turn", "turns": 2}
    with pytest.raises(ValidationError, match="rates are for single requests: later turns of a conversation wait"):
        Workload.model_validate({"shape": turns, "rates": [5]})
    assert Workload.model_validate({"shape": turns}).rates == ()

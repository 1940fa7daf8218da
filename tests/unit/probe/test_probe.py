"""What the baseline says about messages before any rank is started."""

from __future__ import annotations

from typing import Any

import pytest

from tuner.domain.space import Space
from tuner.probe.probe import _gives
from tuner.trial.assembly import engine_setup

SWITCH = "--disable-custom-all-reduce"


def gives(**engine: Any) -> bool:
    space = Space.model_validate({"name": "s", "model": "org/m", "engines": {"vllm": engine}})
    return _gives(engine_setup(space, "vllm", elsewhere=True), SWITCH)


@pytest.mark.parametrize("spelling", [SWITCH, "--disable_custom_all_reduce"])
def test_the_baselines_own_all_reduce_is_off_wherever_and_however_it_is_switched_off(spelling: str) -> None:
    own = {"switch": True, "flag": spelling, "inverted": True}
    assert not gives()
    assert gives(flags={spelling: True})
    assert not gives(flags={spelling: False})
    assert gives(knobs={"own": own}, baseline={"set": {"own": False}})
    assert not gives(knobs={"own": own}, baseline={"set": {"own": True}})
    idle = {"a": {"values": ["x", "y"], "env": "A"}, "own": {**own, "when": "a == y"}}
    assert not gives(knobs=idle, baseline={"set": {"a": "x", "own": False}}), "it is left out of such a launch"

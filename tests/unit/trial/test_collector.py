"""When what was imported before a fork is walked again by the garbage collector."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

SERVER = """
import gc, json
from tuner.trial.collector import SparedImports

imports = [[] for _ in range(100_000)]
gc.collect()
gc.freeze()
SparedImports().start()
full = []
gc.callbacks.append(lambda phase, about: full.append(phase) if about["generation"] == 2 else None)


def until_one_is_due():
    due, kept = len(full), []
    while len(full) == due and len(kept) < 3_000_000:
        kept.append([])
    return len(full) > due


told = []
for what in {steps!r}:
    found = {{"collect": gc.collect, "freeze": gc.freeze, "unfreeze": gc.unfreeze, "due": until_one_is_due}}[what]()
    told.append([gc.get_freeze_count() > 100_000, bool(found)])
print(json.dumps([told, [getattr(gc, name).__module__ for name in ("collect", "freeze", "unfreeze")]]))
"""

pytestmark = pytest.mark.skipif(sys.version_info >= (3, 14), reason="its collections are never full ones")


def spared_after(*steps: str) -> tuple[list[bool], bool]:
    """Whether the imports are spared after each step, and whether the functions of `gc` are Python's own in the end."""
    done = subprocess.run(
        [sys.executable, "-c", SERVER.format(steps=steps)], capture_output=True, text=True, check=True, timeout=60
    )
    told, modules = json.loads(done.stdout)
    assert all(found for step, (_, found) in zip(steps, told, strict=True) if step == "due")
    return [spared for spared, _ in told], set(modules) == {"gc"}


def test_collections_that_the_engine_asks_for_spare_them() -> None:
    assert spared_after("collect", "collect") == ([True, True], False)


def test_one_that_is_due_by_itself_is_made_of_everything() -> None:
    assert spared_after("due") == ([False], True)
    assert spared_after("collect", "due", "collect") == ([True, False, False], True)


def test_an_engine_that_unfreezes_has_them_walked_from_then_on() -> None:
    assert spared_after("collect", "unfreeze", "collect") == ([True, False, False], True)


def test_an_engine_that_freezes_has_them_spared_for_good() -> None:
    assert spared_after("collect", "freeze", "due", "collect") == ([True, True, True, True], True)

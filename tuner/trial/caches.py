"""Where engines keep what they compiled, tuned and captured: one folder per engine version and kind of machine.

The engines' own keys tell configurations apart, but trust that nothing around them changes: another version of torch or
Triton, another driver or GPU gets another folder. Launches of one study share it, which is what makes relaunches quick.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from functools import cache
from pathlib import Path

from tuner.domain.launch import LaunchPlan
from tuner.engines.definition import EngineDefinition
from tuner.engines.installed import Installed
from tuner.trial.machine import MachineFacts, machine_facts


def cache_root() -> Path:
    """tuner's cache: `$TUNER_CACHE`, else `tuner` in `$XDG_CACHE_HOME` or `~/.cache`."""
    chosen = os.environ.get("TUNER_CACHE")
    if chosen:
        return Path(chosen).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tuner"


def engine_cache(engine: str, installed: Installed, machine: MachineFacts) -> Path:
    """The folder of one engine, in one installation's versions, on one kind of machine; it need not exist."""
    gpus = [(gpu.name, gpu.compute_capability) for gpu in machine.gpus]
    told = (installed.version, sorted(installed.packages.items()), machine.cpu, gpus, machine.driver)
    digest = hashlib.sha256(repr(told).encode()).hexdigest()[:12]
    return cache_root() / "engines" / f"{engine}-{installed.version}-{digest}"


def with_caches(plan: LaunchPlan, definition: EngineDefinition, installed: Installed) -> LaunchPlan:
    """A plan whose server keeps its caches there; what the space says of them itself stays.

    Exports leave these variables out. An engine that does not tell its version keeps its caches where it likes.
    """
    if installed.version is None or not definition.cache_env:
        return plan
    folder = engine_cache(definition.name, installed, _this_machine())
    own = {*plan.env, *plan.unset_env}
    added = {name: str(folder / part) for name, part in definition.cache_env.items() if name not in own}
    return replace(plan, env={**plan.env, **added}, trial_only_env=(*plan.trial_only_env, *added))


@cache
def _this_machine() -> MachineFacts:
    return machine_facts()

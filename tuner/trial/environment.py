"""The environment that a server gets: what its plan says and little else, so that two launches see the same."""

from __future__ import annotations

from collections.abc import Mapping

from tuner.domain.launch import LaunchPlan
from tuner.trial.proctree import MARK

BASE_NAMES = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TMPDIR",
    "LD_LIBRARY_PATH",
)
"""Variables of the system that every server gets when the caller has them."""

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
# Ray sets this to 1 in its workers, and a server would inherit it as if the user had asked for one thread.
_NEVER_INHERITED = frozenset({"OMP_NUM_THREADS"})
OWN_NAMES = frozenset({MARK, "PYTHONUNBUFFERED", "CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES", "no_proxy", "NO_PROXY"})
"""Variables that tuner itself gives a launch, whatever its plan says."""


def inherited_names(plan: LaunchPlan) -> tuple[str, ...]:
    """Names of the variables that a launch takes from its caller, in a fixed order."""
    names = dict.fromkeys((*BASE_NAMES, *plan.pass_env))
    refused = _NEVER_INHERITED | set(plan.unset_env) | set(plan.env)
    return tuple(name for name in names if name not in refused)


def fixed_variables(plan: LaunchPlan) -> dict[str, str]:
    """Variables with the same value in every repetition of a launch.

    Besides the plan's own: loopback never goes through a proxy, output is not held back in buffers (the watchdog
    reads it), and the GPUs of the plan are the only visible ones, numbered as the driver numbers them.
    """
    fixed = {"PYTHONUNBUFFERED": "1"}
    if plan.gpus:
        fixed["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        fixed["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, plan.gpus))
    fixed.update(plan.env)
    direct = [part for part in (plan.env.get("no_proxy") or plan.env.get("NO_PROXY") or "").split(",") if part]
    fixed["no_proxy"] = fixed["NO_PROXY"] = ",".join(dict.fromkeys((*direct, *_LOOPBACK)))
    return fixed


def build_environment(plan: LaunchPlan, caller: Mapping[str, str], launch_id: str) -> dict[str, str]:
    """The whole environment of a server: inherited names, then fixed variables, then the launch's mark."""
    taken = {name: caller[name] for name in inherited_names(plan) if name in caller}
    return {**taken, **fixed_variables(plan), MARK: launch_id}

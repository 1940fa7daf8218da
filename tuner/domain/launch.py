"""A launch, complete enough to be repeated by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """How one server is started.

    Attributes:
        engine: engine name, e.g. `sglang`.
        argv: program and arguments; the port is already filled in. Never passed through a shell.
        env: variables set for this launch (the candidate's and the engine definition's fixed ones).
        pass_env: names of variables taken from the caller's environment when they exist (`HF_TOKEN`,
            `PATH` …). Only the names are ever recorded.
        unset_env: names removed from the environment even if the caller has them (proxies, stray `NCCL_*`).
        host: address the server listens on.
        port: HTTP port.
        extra_ports: rendezvous and side ports that this launch also reserves.
        gpus: device indices given to the server; empty on a machine without GPUs.
        cwd: working directory, or None for the run directory.
        trial_only_env: names in `env` that serve measuring only (developer endpoints); exports leave them out.
        simulated: True when no real engine is started; then everything derived from it says so.
        model: what the engine is told to load.
        served_model: the name under which it offers that.
        engine_version: as the installed engine says; None where it does not.
    """

    engine: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    host: str
    port: int
    pass_env: tuple[str, ...] = ()
    unset_env: tuple[str, ...] = ()
    extra_ports: tuple[int, ...] = ()
    gpus: tuple[int, ...] = ()
    cwd: str | None = None
    trial_only_env: tuple[str, ...] = ()
    simulated: bool = False
    model: str = ""
    served_model: str = ""
    engine_version: str | None = None

    @property
    def base_url(self) -> str:
        """`http://host:port`, without a trailing slash."""
        return f"http://{self.host}:{self.port}"

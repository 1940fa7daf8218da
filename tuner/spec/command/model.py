"""A launch command as it was understood."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

FlagText = str | bool | tuple[str, ...]
"""What a flag holds, word for word: True for a bare switch, several words as a tuple."""


@dataclass(frozen=True, slots=True)
class LaunchCommand:
    """A launch command taken apart; every value is text as it was written.

    Attributes:
        engine: `sglang`, `vllm`, `simulated`; None when it cannot be told.
        launcher: what starts the server (`sglang.launch_server`, `docker run … vllm serve`).
        model: the model, None when it is missing or ambiguous.
        env: variables that are set for the server.
        flags: flag as written → value, in order; of a repeated flag the last, as the engines' parsers do.
        positional: words that belong to no flag.
        unresolved: variables and placeholders without a value.
        env_passthrough: variables taken from the caller's environment, by name only.
        env_secrets: variable → the secret it comes from (`hf-token/token`); never its value.
        runtime_flags: flags that a wrapper script may add when it runs.
        container: options of the container: image, gpus, ipc, shm_size, network, … → values.
        notes: what the user should know.
        refusal: why it cannot be imported; None when it can.
    """

    engine: str | None = None
    launcher: str = ""
    model: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    flags: Mapping[str, FlagText] = field(default_factory=dict)
    positional: tuple[str, ...] = ()
    unresolved: tuple[str, ...] = ()
    env_passthrough: tuple[str, ...] = ()
    env_secrets: Mapping[str, str] = field(default_factory=dict)
    runtime_flags: tuple[str, ...] = ()
    container: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    refusal: str | None = None

    @property
    def importable(self) -> bool:
        """Whether the command was understood."""
        return self.refusal is None

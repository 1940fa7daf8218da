"""May launches here be compared with those that a study has already?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tuner.domain.machine import changes, differences
from tuner.domain.study import AttemptRecord, AttemptState
from tuner.errors import MachineUnfit


def machine_changes(
    attempts: Sequence[AttemptRecord], machine: Mapping[str, str], versions: Mapping[str, Mapping[str, str]]
) -> dict[str, tuple[str, str]]:
    """Fact → (as last measured, here), of the facts in `tuner.domain.machine.IDENTITY` and of versions.

    Args:
        attempts: the study's launches; the last measured one counts, for versions the last of each engine.
        machine: what is known here before a launch: summary of this machine, hash of the model's configuration.
        versions: engine → its own name and the packages beside it (torch, NCCL …) → version installed here.
    """
    reports = [a.report for a in attempts if a.state is AttemptState.MEASURED and a.report is not None]
    if not reports:
        return {}
    found = differences(reports[-1].machine, machine)
    for engine, installed in versions.items():
        then = next((r.versions for r in reversed(reports) if engine in r.versions), {})
        for name, change in changes(then, installed).items():
            whose = "" if name == engine else f" beside {engine}"
            found[f"{name} version{whose}"] = change
    return found


def refuse_other_machine(
    attempts: Sequence[AttemptRecord], machine: Mapping[str, str], versions: Mapping[str, Mapping[str, str]]
) -> None:
    """Stop before launches are made that could not be compared with the earlier ones.

    Raises:
        MachineUnfit: naming what is different.
    """
    found = machine_changes(attempts, machine, versions)
    if found:
        told = "; ".join(f"{fact}: {then} then, {here} here" for fact, (then, here) in found.items())
        raise MachineUnfit(
            f"this is not the machine that the study was measured on: {told}",
            hint="go on where it began, start a new study here, or say --other-machine to mix them all the same",
        )
